// Vectors of the processor that this file is compiled for: AVX-512, AVX2, NEON or plain 128-bit ones.
//
// Arithmetic is written with the compiler's own vector types (GCC and Clang), so + - * and comparisons need no names
// here. What they do not offer has one function below: minimum, rounding to bytes, products of bytes and of bf16.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif
#define INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
constexpr int W = 16;  // lanes of 32 bits
#elif defined(__AVX2__)
constexpr int W = 8;
#else
constexpr int W = 4;
#endif
typedef float vf __attribute__((vector_size(4 * W)));
typedef int32_t vi __attribute__((vector_size(4 * W)));
typedef float vf_anywhere __attribute__((vector_size(4 * W), aligned(4), may_alias));
typedef int32_t vi_anywhere __attribute__((vector_size(4 * W), aligned(1), may_alias));

INLINE vf load(const float* p) { return *(const vf_anywhere*)p; }
INLINE void store(float* p, vf v) { *(vf_anywhere*)p = v; }
INLINE vf all(float x) { return x - vf{}; }
INLINE vi all(int32_t x) { return x - vi{}; }
INLINE int32_t four_bytes(const void* p) { int32_t x; memcpy(&x, p, 4); return x; }

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
INLINE vf vmin(vf a, vf b) { return (vf)_mm512_min_ps((__m512)a, (__m512)b); }
INLINE vf vmax(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
#elif defined(__AVX2__)
INLINE vf vmin(vf a, vf b) { return (vf)_mm256_min_ps((__m256)a, (__m256)b); }
INLINE vf vmax(vf a, vf b) { return (vf)_mm256_max_ps((__m256)a, (__m256)b); }
#else
INLINE vf vmin(vf a, vf b) { return a < b ? a : b; }
INLINE vf vmax(vf a, vf b) { return a > b ? a : b; }
#endif

INLINE float sum(vf v) { float s[W], t = 0; store(s, v); for (int i = 0; i < W; i++) t += s[i]; return t; }
INLINE float lowest(vf v) { float s[W]; store(s, v); float t = s[0]; for (int i = 1; i < W; i++) t = s[i] < t ? s[i] : t; return t; }
INLINE float highest(vf v) { float s[W]; store(s, v); float t = s[0]; for (int i = 1; i < W; i++) t = s[i] > t ? s[i] : t; return t; }

// W numbers from 0 to 255 to the nearest bytes
INLINE void store_bytes(uint8_t* p, vf v) {
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
    _mm_storeu_si128((__m128i*)p, _mm512_cvtusepi32_epi8(_mm512_cvtps_epi32((__m512)v)));
#elif defined(__AVX2__)
    const __m256i i = _mm256_cvtps_epi32((__m256)v);
    const __m128i h = _mm_packus_epi32(_mm256_castsi256_si128(i), _mm256_extracti128_si256(i, 1));
    _mm_storel_epi64((__m128i*)p, _mm_packus_epi16(h, h));
#else
    for (int i = 0; i < W; i++) p[i] = (uint8_t)(v[i] + .5f);
#endif
}

// e^x from 2^x: the whole part of the exponent goes into the bits of the number, the rest is a polynomial (relative 1e-7)
INLINE vf exp2_of(vf x) {
    x = vmin(vmax(x, all(-126.f)), all(126.f));
    const vf magic = all(12582912.f), n = (x + magic) - magic, r = x - n;
    vf p = all(1.535336188e-4f);
    p = p * r + 1.339887440e-3f;
    p = p * r + 9.618437357e-3f;
    p = p * r + 5.550332471e-2f;
    p = p * r + 2.402264791e-1f;
    p = p * r + 6.931472028e-1f;
    p = p * r + 1.f;
    return (vf)((vi)p + (__builtin_convertvector(n, vi) << 23));
}
INLINE vf exp_of(vf x) { return exp2_of(x * 1.44269504f); }

// ---- products: A is a row's element, `depth` of them multiply one lane of the weights at a time ---------------------------
struct Float {
    typedef float A;
    typedef vf Sum;
    static constexpr int depth = 1;
    INLINE vf row(const float* a) { return all(*a); }
    INLINE vf weights(const char* b) { return *(const vf_anywhere*)b; }
    INLINE void add(vf& s, vf a, vf b) {
#if defined(__AVX512F__)
        asm("vfmadd231ps %2, %1, %0" : "+v"(s) : "v"(a), "v"(b));  // GCC 12 spills the sums of its own
#else
        s += a * b;
#endif
    }
};

#if defined(__AVX512BF16__) && defined(__AVX512VL__)
#define HAS_BF16 1
struct Half {  // bf16
    typedef uint16_t A;
    typedef vf Sum;
    static constexpr int depth = 2;
    INLINE vi row(const uint16_t* a) { return all(four_bytes(a)); }
    INLINE vi weights(const char* b) { return *(const vi_anywhere*)b; }
    INLINE void add(vf& s, vi a, vi b) { asm("vdpbf16ps %2, %1, %0" : "+v"(s) : "v"(a), "v"(b)); }
};
INLINE void store_half(uint16_t* p, vf v) { const __m256bh h = _mm512_cvtneps_pbh((__m512)v); memcpy(p, &h, 32); }
#else
#define HAS_BF16 0
struct Half { typedef uint16_t A; };
INLINE void store_half(uint16_t*, vf) {}
#endif

// Bytes: activations without a sign (up to TOP), weights with one; each lane adds four products to a sum.
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
constexpr int TOP = 255;
INLINE void add_bytes(vi& s, vi a, vi b) { asm("vpdpbusd %2, %1, %0" : "+v"(s) : "v"(a), "v"(b)); }
#elif defined(__AVXVNNI__)
constexpr int TOP = 255;
INLINE void add_bytes(vi& s, vi a, vi b) { asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(s) : "x"(a), "x"(b)); }
#elif defined(__AVX2__)
constexpr int TOP = 127;  // two products of 8 x 8 bits do not fit in the 16 that vpmaddubsw adds them in; of 7 x 8 they do
INLINE void add_bytes(vi& s, vi a, vi b) {
    s += (vi)_mm256_madd_epi16(_mm256_maddubs_epi16((__m256i)a, (__m256i)b), _mm256_set1_epi16(1));
}
#elif defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)
constexpr int TOP = 127;  // `vdotq_s32` reads both sides with a sign
INLINE void add_bytes(vi& s, vi a, vi b) { s = (vi)vdotq_s32((int32x4_t)s, (int8x16_t)a, (int8x16_t)b); }
#else
constexpr int TOP = 255;
INLINE void add_bytes(vi& s, vi a, vi b) {  // byte by byte in lanes of 32 bits
    for (int i = 0; i < 4; i++) s += ((a >> (8 * i)) & 255) * ((b << (24 - 8 * i)) >> 24);
}
#endif
struct Byte {
    typedef uint8_t A;
    typedef vi Sum;
    static constexpr int depth = 4;
    INLINE vi row(const uint8_t* a) { return all(four_bytes(a)); }
    INLINE vi weights(const char* b) { return *(const vi_anywhere*)b; }
    INLINE void add(vi& s, vi a, vi b) { add_bytes(s, a, b); }
};

// Rows and vectors of a tile: as many sums as the registers hold beside the weights
#if defined(__AVX512F__) && defined(__AVX512VL__)
constexpr int MR = 6, NV = 4;
#elif defined(__AVX2__)
constexpr int MR = 6, NV = 2;
#elif defined(__aarch64__)
constexpr int MR = 5, NV = 4;
#else
constexpr int MR = 3, NV = 2;
#endif
constexpr int NR = NV * W;  // columns of a panel of weights
