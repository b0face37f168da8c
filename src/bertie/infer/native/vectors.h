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
#include <utility>
#define INLINE static inline __attribute__((always_inline))
#define INLINED __attribute__((always_inline))

// f(0), f(1) ... f(N - 1), each number a constant: GCC 12 keeps an array in registers only where no loop indexes it
template <class F, int... I>
INLINE void each_of(F f, std::integer_sequence<int, I...>) { (f(std::integral_constant<int, I>{}), ...); }
template <int N, class F>
INLINE void each(F f) { each_of(f, std::make_integer_sequence<int, N>{}); }

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

// Of all lanes: their sum, the smallest, the largest
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
INLINE float sum(vf v) { return _mm512_reduce_add_ps((__m512)v); }
INLINE float lowest(vf v) { return _mm512_reduce_min_ps((__m512)v); }
INLINE float highest(vf v) { return _mm512_reduce_max_ps((__m512)v); }
#elif defined(__AVX2__)
#define OF_LANES(name, op)                                                                                        \
    INLINE float name(vf v) {                                                                                     \
        const __m128 a = _mm_##op##_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1)); \
        const __m128 b = _mm_##op##_ps(a, _mm_movehl_ps(a, a));                                                   \
        return _mm_cvtss_f32(_mm_##op##_ss(b, _mm_movehdup_ps(b)));                                               \
    }
OF_LANES(sum, add)
OF_LANES(lowest, min)
OF_LANES(highest, max)
#elif defined(__aarch64__)
INLINE float sum(vf v) { return vaddvq_f32((float32x4_t)v); }
INLINE float lowest(vf v) { return vminvq_f32((float32x4_t)v); }
INLINE float highest(vf v) { return vmaxvq_f32((float32x4_t)v); }
#else
INLINE float sum(vf v) { return (v[0] + v[1]) + (v[2] + v[3]); }
INLINE float lowest(vf v) { const float a = v[0] < v[1] ? v[0] : v[1], b = v[2] < v[3] ? v[2] : v[3]; return a < b ? a : b; }
INLINE float highest(vf v) { return -lowest(-v); }
#endif

// a b + c, rounded once where the processor can: said, since compilers choose otherwise from tile to tile, and a row's
// numbers are to be the same in all of them
INLINE vf madd(vf a, vf b, vf c) {
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
    return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

// W numbers; the first `count` lanes as they are, the others x
INLINE vf first_lanes(vf v, int count, float x) {
    vi lane;
    for (int i = 0; i < W; i++) lane[i] = i;
    return lane < count ? v : all(x);
}

typedef int32_t four __attribute__((vector_size(16)));
typedef int32_t four_anywhere __attribute__((vector_size(16), aligned(4), may_alias));
#if defined(__clang__)
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, four{__VA_ARGS__})
#endif
INLINE void transpose_4x4(const int32_t* x, size_t ld, int32_t* out, size_t ldo) {
    const four a = *(const four_anywhere*)x, b = *(const four_anywhere*)(x + ld), c = *(const four_anywhere*)(x + 2 * ld), d = *(const four_anywhere*)(x + 3 * ld);
    const four ab = SHUFFLE(a, b, 0, 4, 1, 5), cd = SHUFFLE(c, d, 0, 4, 1, 5), AB = SHUFFLE(a, b, 2, 6, 3, 7), CD = SHUFFLE(c, d, 2, 6, 3, 7);
    *(four_anywhere*)out = SHUFFLE(ab, cd, 0, 1, 4, 5);
    *(four_anywhere*)(out + ldo) = SHUFFLE(ab, cd, 2, 3, 6, 7);
    *(four_anywhere*)(out + 2 * ldo) = SHUFFLE(AB, CD, 0, 1, 4, 5);
    *(four_anywhere*)(out + 3 * ldo) = SHUFFLE(AB, CD, 2, 3, 6, 7);
}
// two rows of 16-bit numbers side by side, W of each; zeros for a row that is not there
INLINE void pair(const uint16_t* a, const uint16_t* b, int32_t* out) {
    typedef uint16_t halves __attribute__((vector_size(2 * W), aligned(2), may_alias));
    const vi low = __builtin_convertvector(*(const halves*)a, vi);
    *(vi_anywhere*)out = b ? low | (__builtin_convertvector(*(const halves*)b, vi) << 16) : low;
}

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
// 2^x for x <= 0, relative error 3e-6: for what is rounded to bf16 anyway
INLINE vf exp2_roughly(vf x) {
    x = vmax(x, all(-126.f));
    const vf magic = all(12582912.f), n = x + magic, r = x - (n - magic);
    vf p = all(9.57009e-3f);
    p = p * r + 5.591782e-2f;
    p = p * r + 2.4024745e-1f;
    p = p * r + 6.9312182e-1f;
    p = p * r + 9.9999926e-1f;
    return (vf)((vi)p + ((vi)n << 23));  // the whole part is in the lowest bits of n
}
INLINE vf exp_of(vf x) { return exp2_of(x * 1.44269504f); }

// Rows and vectors of a tile: as many sums as fit into the registers together with the weights
#if defined(__AVX512F__) && defined(__AVX512VL__)
constexpr int MR = 6, NV = 4;
#elif defined(__AVX2__)
constexpr int MR = 6, NV = 2;
#elif defined(__aarch64__)
constexpr int MR = 5, NV = 4;
#else
constexpr int MR = 3, NV = 2;
#endif

// ---- products: A is a row's element, `depth` of them multiply one lane of the weights, `steps` times before they are added ---------------------------
struct Float {
    typedef float A;
    typedef vf Sum;
    static constexpr int depth = 1, steps = 1, rows = MR;
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
    static constexpr int depth = 2, steps = 1, rows = MR;
    INLINE vi row(const uint16_t* a) { return all(four_bytes(a)); }
    INLINE vi weights(const char* b) { return *(const vi_anywhere*)b; }
    INLINE void add(vf& s, vi a, vi b) { asm("vdpbf16ps %2, %1, %0" : "+v"(s) : "v"(a), "v"(b)); }
};
INLINE vf load_half(const uint16_t* p) { return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)), 16); }
INLINE void store_half(uint16_t* p, vf v) { const __m256bh h = _mm512_cvtneps_pbh((__m512)v); memcpy(p, &h, 32); }
#else
#define HAS_BF16 0
struct Half { typedef uint16_t A; };
INLINE vf load_half(const uint16_t*) { return vf{}; }
INLINE void store_half(uint16_t*, vf) {}
#endif

// Bytes: activations without a sign (up to TOP), weights with one; each lane adds four products to a sum.
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
constexpr int TOP = 255, STEPS = 1;
INLINE void add_bytes(vi& s, vi a, vi b) { asm("vpdpbusd %2, %1, %0" : "+v"(s) : "v"(a), "v"(b)); }
#elif defined(__AVXVNNI__)
constexpr int TOP = 255, STEPS = 1;
INLINE void add_bytes(vi& s, vi a, vi b) { asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(s) : "x"(a), "x"(b)); }
#elif defined(__AVX2__)
// vpmaddubsw adds products of 7 x 8 bits in 16. Two such sums fit there too where four weights add up to at most MOST.
constexpr int TOP = 127, STEPS = 2;
INLINE void add_bytes(vi& s, vi a0, vi b0, vi a1, vi b1) {
    const __m256i two = _mm256_add_epi16(_mm256_maddubs_epi16((__m256i)a0, (__m256i)b0), _mm256_maddubs_epi16((__m256i)a1, (__m256i)b1));
    s += (vi)_mm256_madd_epi16(two, _mm256_set1_epi16(1));
}
#elif defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)
constexpr int TOP = 127, STEPS = 1;  // `vdotq_s32` reads both sides with a sign
INLINE void add_bytes(vi& s, vi a, vi b) { s = (vi)vdotq_s32((int32x4_t)s, (int8x16_t)a, (int8x16_t)b); }
#else
constexpr int TOP = 255, STEPS = 1;
INLINE void add_bytes(vi& s, vi a, vi b) {  // byte by byte in lanes of 32 bits
    for (int i = 0; i < 4; i++) s += ((a >> (8 * i)) & 255) * ((b << (24 - 8 * i)) >> 24);
}
#endif
constexpr int MOST = STEPS == 2 ? 32767 / TOP : 0;  // 0: any weights do

struct Byte {
    typedef uint8_t A;
    typedef vi Sum;
    static constexpr int depth = 4, steps = STEPS, rows = STEPS == 2 ? 4 : MR;
    INLINE vi row(const uint8_t* a) { return all(four_bytes(a)); }
    INLINE vi weights(const char* b) { return *(const vi_anywhere*)b; }
    template <class... V>
    INLINE void add(vi& s, V... rows_and_weights) { add_bytes(s, rows_and_weights...); }
};
constexpr int NR = NV * W;  // columns of a panel of weights
