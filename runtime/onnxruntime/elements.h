/* Element types: what a kernel loads, adds and multiplies, every operation rounded by itself.

   Integers wrap, so signed and unsigned ones are the same. The 16-bit floats are computed in float and rounded: float has
   more than twice their digits and two, so that is the rounding of the exact sum or product. */
#ifndef LOOPLIFT_ELEMENTS_H
#define LOOPLIFT_ELEMENTS_H

#include <stdint.h>
#include <string.h>

/* Into the loops, also where a compiler is told to keep code small: else these are not computed as vectors. */
#define INLINE static inline __attribute__((always_inline))

enum kind { U8, U16, U32, U64, F16, BF16, F32, F64, KINDS };

struct element {
    int ort;           /* ONNXTensorElementDataType */
    enum kind kind;
    size_t size;
};

#define ELEMENTS                                                                                                      \
    {{1, F32, 4}, {2, U8, 1}, {3, U8, 1}, {4, U16, 2}, {5, U16, 2}, {6, U32, 4}, {7, U64, 8}, {10, F16, 2},           \
     {11, F64, 8}, {12, U32, 4}, {13, U64, 8}, {16, BF16, 2}}
enum { ELEMENT_COUNT = 12 };

INLINE float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

INLINE uint32_t bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* No branches, so that rows of them are computed as vectors; no subnormal float on the way. */
INLINE float float_of_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, magnitude = half & 0x7fffu;
    uint32_t normal = (magnitude << 13) + (112u << 23);
    normal += magnitude >= 0x7c00u ? 112u << 23 : 0u; /* infinity and NaN */
    uint32_t subnormal = bits_of_float((float)(int32_t)magnitude * 0x1p-24f);
    return float_of_bits(sign | (magnitude < 0x400u ? subnormal : normal));
}

INLINE uint16_t f16_of_float(float value)
{
    uint32_t bits = bits_of_float(value), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
    uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    /* The last place of the sum is that of the smallest half: the addition rounds. */
    uint32_t subnormal = bits_of_float(float_of_bits(magnitude) + 0.5f) - 0x3f000000u;
    uint32_t large = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
    uint32_t half = magnitude < 0x38800000u ? subnormal : normal;
    return (uint16_t)(sign | (magnitude >= 0x47800000u ? large : half));
}

INLINE float float_of_bf16(uint16_t half)
{
    return float_of_bits((uint32_t)half << 16);
}

INLINE uint16_t bf16_of_float(float value)
{
    uint32_t bits = bits_of_float(value);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

INLINE uint16_t sum_of_f16(uint16_t a, uint16_t b) { return f16_of_float(float_of_f16(a) + float_of_f16(b)); }
INLINE uint16_t product_of_f16(uint16_t a, uint16_t b) { return f16_of_float(float_of_f16(a) * float_of_f16(b)); }
INLINE uint16_t sum_of_bf16(uint16_t a, uint16_t b) { return bf16_of_float(float_of_bf16(a) + float_of_bf16(b)); }
INLINE uint16_t product_of_bf16(uint16_t a, uint16_t b)
{
    return bf16_of_float(float_of_bf16(a) * float_of_bf16(b));
}

#endif
