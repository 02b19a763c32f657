/* Prints what the rows of all element types are for made-up bits: the same on every machine, where NaN counts as NaN. */

#include <stdio.h>
#include <string.h>

#include "recurrences.h"
#include "rows.h"

enum { STEPS = 9, MOST = 300, REPEATS = 300 };

static uint64_t random_bits(void) /* xorshift64, Marsaglia 2003 */
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static uint64_t without_payload(uint64_t bits, enum kind kind)
{
    uint64_t magnitude = kind == F64 ? bits & 0x7fffffffffffffffu : kind == F32 ? bits & 0x7fffffffu : bits & 0x7fffu;
    int nan = (kind == F64 && magnitude > 0x7ff0000000000000u) || (kind == F32 && magnitude > 0x7f800000u) ||
              (kind == F16 && magnitude > 0x7c00u) || (kind == BF16 && magnitude > 0x7f80u);
    return nan ? 1 : bits;
}

int main(void)
{
    static const size_t size[KINDS] = {[U8] = 1, [U16] = 2, [U32] = 4, [U64] = 8, [F16] = 2, [BF16] = 2, [F32] = 4, [F64] = 8};
    static uint64_t state[MOST], factors[STEPS * MOST], terms[STEPS * MOST], out[STEPS * MOST];
    const char *fault = find_fault();
    printf("%s\n", fault ? fault : "exact");
    for (int recurrence = 0; recurrence < RECURRENCES; recurrence++)
        for (int kind = 0; kind < KINDS; kind++) {
            uint64_t digest = 14695981039346656037u; /* FNV-1a */
            for (int repeat = 0; repeat < REPEATS; repeat++) {
                ptrdiff_t columns = 1 + (ptrdiff_t)(random_bits() % MOST);
                for (int k = 0; k < MOST; k++)
                    state[k] = random_bits();
                for (int k = 0; k < STEPS * MOST; k++) {
                    factors[k] = random_bits();
                    terms[k] = random_bits();
                }
                struct rows rows = {.first = out, .stride = columns, .state = state, .count = STEPS, .columns = columns,
                                    .factor = {.data = factors, .stride = columns}, .term = {.data = terms, .stride = columns}};
                rows_here()[recurrence][kind](&rows, 0, columns);
                for (ptrdiff_t k = 0; k < STEPS * columns; k++) {
                    uint64_t bits = 0;
                    memcpy(&bits, (const char *)out + (size_t)k * size[kind], size[kind]);
                    digest = (digest ^ without_payload(bits, (enum kind)kind)) * 1099511628211u;
                }
            }
            printf("%d %d %016llx\n", recurrence, kind, (unsigned long long)digest);
        }
    return fault != NULL;
}
