/* Rows of states: row t is computed from the row before it, a range of columns at a time. */
#ifndef LOOPLIFT_ROWS_H
#define LOOPLIFT_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "elements.h"

/* What the steps read: the element of step t begins at data + t * stride, in elements. */
struct operand {
    const void *data;
    ptrdiff_t stride;
    const ptrdiff_t *offsets; /* of each column in an element that broadcasts; NULL: columns lie side by side */
    void *row;                /* room for a row, where there are offsets */
};

struct rows {
    void *first;              /* the first row to fill */
    ptrdiff_t stride;         /* from a row to the next; 0: only the last one is kept */
    const void *state;        /* the row before the first */
    int64_t count;
    ptrdiff_t columns;
    struct operand factor, term;
};

typedef void (*fill_rows)(const struct rows *rows, ptrdiff_t begin, ptrdiff_t width);

enum recurrence { ADD, MULTIPLY_AND_ADD, RECURRENCES };

/* state + term; factor * state + term. For all columns, or a range of them. */
extern const fill_rows rows_plain[RECURRENCES][KINDS];
extern const fill_rows rows_avx2[RECURRENCES][KINDS];

/* The fastest that this processor runs. */
const fill_rows (*rows_here(void))[KINDS];

#endif
