/* Rows by the instructions that every processor of this kind has; and which of the two this one takes. */

#define TABLE rows_plain
#include "rows_all.inc"

const fill_rows (*rows_here(void))[KINDS]
{
#if defined(__x86_64__) && defined(__GNUC__) && !defined(ROWS_PLAIN_ONLY)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2"))
        return rows_avx2;
#endif
    return rows_plain;
}
