/* Rows by AVX2, which has no fused multiply-add (that is FMA). */

#if defined(__x86_64__) && defined(__clang__)
#include <string.h>
#include "rows.h"
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#elif defined(__x86_64__) && defined(__GNUC__)
#pragma GCC target("avx2")
#endif

#if defined(__x86_64__) && defined(__GNUC__)
#define TABLE rows_avx2
#include "rows_all.inc"
#endif

#if defined(__x86_64__) && defined(__clang__)
#pragma clang attribute pop
#endif
