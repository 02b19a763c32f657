/* Whether a build rounds as IEEE 754 says: asked when the library is loaded, of the very functions that are used. */

#include <string.h>

#include "recurrences.h"
#include "rows.h"

/* 19 columns: every width that is computed at once, and wide rows besides, by way of `repeat`. */
enum { WIDTH = 19, WIDE = WIDTH * 5, STEPS = 3 };

/* Fills all columns with one case, runs the steps that are all alike, and says whether each row is what it must be. */
static int agrees(const fill_rows (*table)[KINDS], enum recurrence recurrence, enum kind kind, size_t size,
                  const void *factor, const void *state, const void *term, const void *expected)
{
    static const ptrdiff_t widths[] = {WIDTH, WIDE};
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        unsigned char filled[4][WIDE * 8], made[WIDE * 8];
        const void *values[4] = {factor, state, term, expected};
        ptrdiff_t columns = widths[w];
        for (int k = 0; k < 4; k++)
            for (ptrdiff_t column = 0; column < columns; column++)
                memcpy(filled[k] + (size_t)column * size, values[k], size);
        struct rows rows = {made, 0, filled[1], 1, columns, {filled[0], 0, NULL, NULL}, {filled[2], 0, NULL, NULL}};
        table[recurrence][kind](&rows, 0, columns);
        if (memcmp(made, filled[3], (size_t)columns * size))
            return 0;
    }
    return 1;
}

#define CHECK(recurrence, kind, type, factor, state, term, expected, fault)                                           \
    do {                                                                                                              \
        const type values_[4] = {factor, state, term, expected};                                                      \
        if (!agrees(table, recurrence, kind, sizeof(type), &values_[0], &values_[1], &values_[2], &values_[3]))       \
            return fault;                                                                                             \
    } while (0)

static const char *const FUSED = "products are not rounded before they are added to";
static const char *const FLUSHED = "subnormal numbers are taken for zero";
static const char *const TIE = "halfway cases are not rounded to even";
static const char *const WRAPPED = "integers do not wrap";

static const char *fault_of(const fill_rows (*table)[KINDS])
{
    /* (1 + eps)^2 - (1 + 2 eps) is 0, and eps^2 if fused. */
    CHECK(MULTIPLY_AND_ADD, F32, float, 0x1.000002p0f, 0x1.000002p0f, -0x1.000004p0f, 0.0f, FUSED);
    CHECK(MULTIPLY_AND_ADD, F64, double, 0x1.0000000000001p0, 0x1.0000000000001p0, -0x1.0000000000002p0, 0.0, FUSED);
    CHECK(MULTIPLY_AND_ADD, F16, uint16_t, 0x3c01, 0x3c01, 0xbc02, 0, FUSED);
    CHECK(MULTIPLY_AND_ADD, BF16, uint16_t, 0x3f81, 0x3f81, 0xbf82, 0, FUSED);
    CHECK(MULTIPLY_AND_ADD, F32, float, 0.5f, 0x1p-148f, 0x1p-149f, 0x1p-148f, FLUSHED);
    CHECK(MULTIPLY_AND_ADD, F64, double, 0.5, 0x1p-1073, 0x1p-1074, 0x1p-1073, FLUSHED);
    CHECK(MULTIPLY_AND_ADD, F16, uint16_t, 0x3800, 2, 1, 2, FLUSHED);
    CHECK(MULTIPLY_AND_ADD, BF16, uint16_t, 0x3f00, 2, 1, 2, FLUSHED);
    CHECK(ADD, F32, float, 0, 0x1p-149f, 0x1p-149f, 0x1p-148f, FLUSHED);
    CHECK(ADD, F64, double, 0, 0x1p-1074, 0x1p-1074, 0x1p-1073, FLUSHED);
    CHECK(ADD, F16, uint16_t, 0, 1, 1, 2, FLUSHED);
    CHECK(ADD, BF16, uint16_t, 0, 1, 1, 2, FLUSHED);
    CHECK(ADD, F32, float, 0, 1.0f, 0x1p-24f, 1.0f, TIE);
    CHECK(ADD, F32, float, 0, 0x1.000002p0f, 0x1p-24f, 0x1.000004p0f, TIE);
    CHECK(ADD, F64, double, 0, 1.0, 0x1p-53, 1.0, TIE);
    CHECK(ADD, F64, double, 0, 0x1.0000000000001p0, 0x1p-53, 0x1.0000000000002p0, TIE);
    CHECK(ADD, F16, uint16_t, 0, 0x3c00, 0x1000, 0x3c00, TIE);   /* 1 + 2^-11 */
    CHECK(ADD, F16, uint16_t, 0, 0x3c01, 0x1000, 0x3c02, TIE);
    CHECK(ADD, F16, uint16_t, 0, 0x7bff, 0x4c00, 0x7c00, TIE);   /* the largest, and half a last place: infinity */
    CHECK(ADD, BF16, uint16_t, 0, 0x3f80, 0x3b80, 0x3f80, TIE);  /* 1 + 2^-8 */
    CHECK(ADD, BF16, uint16_t, 0, 0x3f81, 0x3b80, 0x3f82, TIE);
    CHECK(MULTIPLY_AND_ADD, U8, uint8_t, 0xfd, 0x35, 0x80, (uint8_t)(0xfd * 0x35 + 0x80), WRAPPED);
    CHECK(MULTIPLY_AND_ADD, U16, uint16_t, 0xffff, 0xffff, 0xffff, 0, WRAPPED);
    CHECK(MULTIPLY_AND_ADD, U32, uint32_t, 0xffffffffu, 0xffffffffu, 0xffffffffu, 0, WRAPPED);
    CHECK(MULTIPLY_AND_ADD, U64, uint64_t, UINT64_MAX, UINT64_MAX, UINT64_MAX, 0, WRAPPED);
    return NULL;
}

const char *find_fault(void) { return fault_of(rows_here()); }
