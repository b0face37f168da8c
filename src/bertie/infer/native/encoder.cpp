// A transformer encoder on packed sequences: token ids in, hidden states out. One call is one thread; nothing is padded.
//
// Layers are BERT's or ModernBERT's: normalized after each half or before it, with learned or rotary positions, with or
// without gates and windows. A window's keys are read in stripes of queries, so that no work is done beyond it.
//
// A call takes a chunk of sequences through all layers, so that activations stay in the cache and threads never wait for
// each other. Where there are fewer chunks than threads, several calls share one chunk's rows and meet once a layer. Linear layers are float32, bf16 or int8, each as it was prepared. In int8, rows are quantized as they are
// written, asymmetrically, per token and group of features: x ~ s q + m, weights w ~ t v, so that
// x w = s t sum(q v) + m t sum(v), and the second term is known beforehand. Attention multiplies in bf16 where the
// processor does, else in float32. Softmax, residuals, norms and activations are float32.
//
// Compiled once for each kind of processor (build.py). Widths are multiples of 16, heads up to 128 wide.
#include "vectors.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <type_traits>
#if defined(__unix__) || defined(__APPLE__)
#include <sched.h>
#endif

namespace {

enum Kind { FLOAT, HALF, BYTE };
enum Activation { NONE, GELU, GELU_TANH, RELU, SILU, GATED = 8 };  // GATED: added to another; the second half of a row multiplies

struct Linear {          // 64-byte aligned arrays; N is rounded up to panels in all of them
    const char* panels;  // [N / NR][K / depth][NR][depth]
    const float* scale;  // [G][N] t, of int8
    const float* wsum;   // [G][N] t sum(v), of int8
    const float* bias;   // [N]
    const float *inv, *off;  // [K] the row that is quantized is x inv + off: smoothing and shift of each feature; null: x
    int32_t N, K, kind, G, size[4];  // G groups of features, each with scales of its own
};
struct Norm { const float *g, *b; };  // null: there is none
struct Layer {
    Linear qkv, out, up, down;  // up: to 2 I features where the activation is GATED
    Norm attention, fed;        // of the two halves
    const float* turns;         // [positions][D] the cosines of a position's D / 2 angles, then the sines; null: not rotary
    int32_t radius;             // tokens on each side that a token sees
};
struct Model {
    const float *word, *position, *type;  // E wide; position and type may be null
    Norm embedded, final;                 // final: after the last of the pre-norm layers
    const Linear* project;                // E -> H, or null
    const Layer* const* layers;
    const int32_t* order;  // [H] feature k here is feature order[k] of the model; null: k
    int32_t num_layers, H, E, A, I, heads, activation, attention, pre;  // A: of all heads together; attention: FLOAT or HALF
    float eps;
};
enum Keep { TOKENS, MEANS, FIRSTS };  // what a call gives: a row a token, or a sequence's mean or first row
struct Team {  // the calls that share a chunk: call `part` computes rows T part / parts to T (part + 1) / parts
    float* x;                     // [T][H]
    char* qkv[2];                 // [T][3 A] of layers by turns: a slow call still reads the one before
    std::atomic<int32_t>* count;  // of arrivals, 0 at first
    int32_t part, parts;
};

// ---- activations -----------------------------------------------------------------------------------------------------
INLINE vf erf_of(vf x) {  // x P(x^2) / Q(x^2), fitted to the largest error: 4.3e-7 with the rounding of float32
    const vf y = vmax(vmin(x, all(3.92f)), all(-3.92f)), z = y * y;
    vf p = all(2.0347309e-06f), q = all(3.8070644e-05f);
    p = p * z + 2.8748030e-04f, q = q * z + 1.1881236e-03f;
    p = p * z + 3.8683610e-03f, q = q * z + 1.5172362e-02f;
    p = p * z + 5.3060584e-02f, q = q * z + 1.1508491e-01f;
    p = p * z + 1.9276482e-01f, q = q * z + 5.0416505e-01f;
    p = p * z + 1.1283790e+00f, q = q * z + 1.f;
    return y * p / q;
}
INLINE vf gelu_roughly(vf x) {  // x Phi(x) with an error below 6e-5: less than a step of 8 bits or of bf16
    const vf y = vmax(vmin(x, all(4.5f)), all(-4.5f)), z = y * y;
    vf p = all(3.0363830e-11f);
    p = p * z - 3.3146306e-09f;
    p = p * z + 1.5909869e-07f;
    p = p * z - 4.4517110e-06f;
    p = p * z + 8.1424972e-05f;
    p = p * z - 1.0375901e-03f;
    p = p * z + 9.5851989e-03f;
    p = p * z - 6.5984651e-02f;
    p = p * z + 3.9871261e-01f;
    return x * (y * p + .5f);
}
template <int ACT, bool ROUGHLY>
INLINE vf activate(vf x) {
    if (ACT == GELU) return ROUGHLY ? gelu_roughly(x) : x * (erf_of(x * .70710678f) * .5f + .5f);
    if (ACT == GELU_TANH) return x / (exp_of(x * (x * x * .044715f + 1.f) * -1.59576912f) + 1.f);
    if (ACT == RELU) return vmax(x, vf{});
    if (ACT == SILU) return x / (exp_of(-x) + 1.f);
    return x;
}

// ---- rows, as the linear layer that reads them wants them -------------------------------------------------------------------
struct Rows {  // of one linear layer: M rows of K elements, and for int8 each group's scale and minimum at [g * stride + row]
    char* data;
    float *s, *m;
    size_t stride;
};
INLINE size_t element(int kind) { return kind == BYTE ? 1 : kind == HALF ? 2 : 4; }

// W features of the row that a linear layer reads, K of them
template <int ACT, bool ROUGHLY>
INLINE vf activated(const float* x, int K) {
    const vf v = activate<ACT & ~GATED, ROUGHLY>(load(x));
    return ACT & GATED ? v * load(x + K) : v;
}
template <int ACT>
INLINE void quantize(const float* x, const Linear& w, uint8_t* q, float* s, float* m, size_t stride, float* row) {
    for (int g = 0, from = 0; g < w.G; from += w.size[g++]) {
        const int to = from + w.size[g];
        vf lo = all(3e38f), hi = all(-3e38f);
        for (int k = from; k < to; k += W) {
            vf v = activated<ACT, true>(x + k, w.K);
            if (w.inv) v = v * load(w.inv + k) + load(w.off + k);
            store(row + k, v);
            lo = vmin(lo, v), hi = vmax(hi, v);
        }
        const float a = lowest(lo), scale = std::max((highest(hi) - a) / TOP, 1e-20f), inv = 1.f / scale;
        for (int k = from; k < to; k += W) store_bytes(q + k, vmin((load(row + k) - a) * inv, all((float)TOP)));
        s[g * stride] = scale, m[g * stride] = a;
    }
}
template <int ACT>
INLINE void prepare_as(const float* x, const Linear& w, const Rows& rows, size_t i, float* row) {
    char* to = rows.data + i * w.K * element(w.kind);
    if (w.kind == BYTE) return quantize<ACT>(x, w, (uint8_t*)to, rows.s + i, rows.m + i, rows.stride, row);
#if HAS_BF16
    if (w.kind == HALF) {
        for (int k = 0; k < w.K; k += W) store_half((uint16_t*)to + k, activated<ACT, true>(x + k, w.K));
        return;
    }
#endif
    for (int k = 0; k < w.K; k += W) store((float*)to + k, activated<ACT, false>(x + k, w.K));
}
void prepare(const float* x, const Linear& w, const Rows& rows, size_t i, float* row, int activation = NONE) {
    switch (activation) {
        case GELU: return prepare_as<GELU>(x, w, rows, i, row);
        case GELU_TANH: return prepare_as<GELU_TANH>(x, w, rows, i, row);
        case RELU: return prepare_as<RELU>(x, w, rows, i, row);
        case SILU: return prepare_as<SILU>(x, w, rows, i, row);
        case GELU | GATED: return prepare_as<GELU | GATED>(x, w, rows, i, row);
        case GELU_TANH | GATED: return prepare_as<GELU_TANH | GATED>(x, w, rows, i, row);
        case RELU | GATED: return prepare_as<RELU | GATED>(x, w, rows, i, row);
        case SILU | GATED: return prepare_as<SILU | GATED>(x, w, rows, i, row);
        default: return prepare_as<NONE>(x, w, rows, i, row);
    }
}
void normalize(const float* x, int H, Norm norm, float eps, float* y) {
    vf s = vf{}, ss = vf{};
    for (int k = 0; k < H; k += W) s += load(x + k);
    const float mean = sum(s) / H;
    for (int k = 0; k < H; k += W) { const vf d = load(x + k) - mean; ss += d * d; }
    const float r = 1.f / std::sqrt(sum(ss) / H + eps);
    for (int k = 0; k < H; k += W) store(y + k, (load(x + k) - mean) * r * load(norm.g + k) + load(norm.b + k));
}

// ---- products ----------------------------------------------------------------------------------------------------------
// K elements of R rows (a, lda apart) by NVT vectors of columns (b; `step` bytes to the next `depth` elements)
template <class P, int R, int NVT>
INLINE void multiply(const typename P::A* a, size_t lda, const char* b, size_t step, int K, typename P::Sum (&sums)[R][NVT]) {
#pragma GCC unroll 2  // 8% faster in float32 on AVX2
    for (int k = 0; k < K; k += P::steps * P::depth, b += P::steps * step) {
        decltype(P::weights(b)) w0[NVT], w1[NVT];
        each<NVT>([&](auto j) INLINED {
            w0[j] = P::weights(b + 4 * W * j);
            if constexpr (P::steps == 2) w1[j] = P::weights(b + step + 4 * W * j);
        });
        each<R>([&](auto r) INLINED {
            const auto x = P::row(a + r * lda + k);
            if constexpr (P::steps == 2) {
                const auto y = P::row(a + r * lda + k + P::depth);
                each<NVT>([&](auto j) INLINED { P::add(sums[r][j], x, w0[j], y, w1[j]); });
            } else {
                each<NVT>([&](auto j) INLINED { P::add(sums[r][j], x, w0[j]); });
            }
        });
    }
}
template <class V, int R, int N>
INLINE void clear(V (&sums)[R][N]) {
    each<R>([&](auto r) INLINED { each<N>([&](auto j) INLINED { sums[r][j] = V{}; }); });
}

enum Finish { PLAIN, ADD, AS_HALF };  // ADD: onto what is there, the residual
INLINE void store_as(float* p, vf v) { store(p, v); }
INLINE void store_as(uint16_t* p, vf v) { store_half(p, v); }
INLINE vf load_as(const float* p) { return load(p); }
INLINE vf load_as(const uint16_t* p) { return load_half(p); }
INLINE void finish(Finish how, char* out, size_t at, vf f) {
    if (how == AS_HALF) store_half((uint16_t*)out + at, f);
    else store((float*)out + at, how == ADD ? f + load((float*)out + at) : f);
}

template <class P, int R>
INLINE void tile(const typename P::A* a, const float* s, const float* m, size_t stride, const Linear& w, int n, Finish how, char* out, int ldc) {
    const int padded = (w.N + NR - 1) / NR * NR;
    const char* b = w.panels + (size_t)n * w.K * element(w.kind);
    constexpr size_t step = (size_t)NR * P::depth * sizeof(typename P::A);
    float found[R][NR] __attribute__((aligned(64)));  // of the groups so far
    for (int g = 0, k = 0; g < w.G; k += w.size[g++]) {
        typename P::Sum sums[R][NV];
        clear(sums);
        multiply<P, R, NV>(a + k, w.K, b + k / P::depth * step, step, w.size[g], sums);
        const bool last = g + 1 == w.G;
        each<NV>([&](auto j) INLINED {
            const int at = n + W * j;
            const vf bias = load(w.bias + at);
            vf t = bias, v = bias;
            if constexpr (std::is_same<P, Byte>::value) t = load(w.scale + (size_t)g * padded + at), v = load(w.wsum + (size_t)g * padded + at);
            each<R>([&](auto r) INLINED {
                vf f;
                if constexpr (std::is_same<P, Byte>::value)
                    f = madd(__builtin_convertvector(sums[r][j], vf), t * s[g * stride + r], madd(v, all(m[g * stride + r]), g ? load(&found[r][W * j]) : bias));
                else
                    f = sums[r][j] + bias;
                if (!last) store(&found[r][W * j], f);
                else if (at < w.N) finish(how, out, (size_t)r * ldc + at, f);  // N is a multiple of W
            });
        });
    }
}
// all rows in tiles of R, then of half as many
template <class P, int R>
INLINE void tiles(int M, const typename P::A* a, const float* s, const float* m, size_t stride, const Linear& w, int n, Finish how, char* out, int ldc) {
    int i = 0;
    for (; i + R <= M; i += R) tile<P, R>(a + (size_t)i * w.K, s + i, m + i, stride, w, n, how, out + (size_t)i * ldc * (how == AS_HALF ? 2 : 4), ldc);
    if constexpr (R > 1) tiles<P, R / 2>(M - i, a + (size_t)i * w.K, s + i, m + i, stride, w, n, how, out + (size_t)i * ldc * (how == AS_HALF ? 2 : 4), ldc);
}
template <class P>
void product_of(const Rows& x, size_t first, int M, const Linear& w, Finish how, void* out, int ldc) {
    for (int n = 0; n < w.N; n += NR) tiles<P, P::rows>(M, (const typename P::A*)x.data + first * w.K, x.s + first, x.m + first, x.stride, w, n, how, (char*)out, ldc);
}
void product(Finish how, const Rows& x, size_t first, int M, const Linear& w, void* out, int ldc) {
    if (w.kind == BYTE) return product_of<Byte>(x, first, M, w, how, out, ldc);
#if HAS_BF16
    if (w.kind == HALF) return product_of<Half>(x, first, M, w, how, out, ldc);
#endif
    product_of<Float>(x, first, M, w, how, out, ldc);
}

// ---- attention of one sequence, its products in P: float32 or bf16 -------------------------------------------------------------
// Rotary positions: the first half of each head is turned with the second. turns [D] of the row's position
template <class T>
INLINE void turn(T* x, int size, int D, const float* turns) {
    for (int h = 0; h < size; h += D)
        for (int k = 0; k < D / 2; k += W) {  // D is a multiple of 32
            T *one = x + h + k, *two = one + D / 2;
            const vf a = load_as(one), b = load_as(two), c = load(turns + k), s = load(turns + D / 2 + k);
            store_as(one, a * c - b * s), store_as(two, b * c + a * s);
        }
}
// These two are functions of their own: inside others, GCC has too few registers for them on AVX2 (6% of all in int8)
template <class P, int R, int NVT>
__attribute__((noinline)) void scores_tile(const typename P::A* q, size_t ld, const char* kt, int Lp, int D, int j, int width, float* S) {
    vf sums[R][NVT];
    clear(sums);
    multiply<P, R, NVT>(q, ld, kt + (size_t)j * 4, (size_t)Lp * 4, D, sums);
    each<R>([&](auto r) INLINED { each<NVT>([&](auto c) INLINED { store(S + (size_t)r * width + j + W * c, sums[r][c]); }); });
}
template <class P, int R, int NVT>
__attribute__((noinline)) void values_tile(const typename P::A* p, size_t ldp, const char* v, size_t step, int L, const float* inv, float* out, size_t ldo) {
    vf sums[R][NVT];
    clear(sums);
    multiply<P, R, NVT>(p, ldp, v, step, L, sums);
    each<R>([&](auto r) INLINED { each<NVT>([&](auto c) INLINED { store(out + r * ldo + W * c, sums[r][c] * inv[r]); }); });
}
// all columns in tiles of N vectors, then what is left of them
template <class P, int R, int N>
INLINE void scores(const typename P::A* q, size_t ld, const char* kt, int Lp, int D, int j, int width, float* S) {
    for (; j + N * W <= width; j += N * W) scores_tile<P, R, N>(q, ld, kt, Lp, D, j, width, S);
    if constexpr (N > 1) scores<P, R, N - 1>(q, ld, kt, Lp, D, j, width, S);
}
template <class P, int R, int N>
INLINE void values(const typename P::A* p, size_t ldp, const char* v, size_t step, int L, int D, int d, const float* inv, float* out, size_t ldo) {
    for (; d + N * W <= D; d += N * W) values_tile<P, R, N>(p, ldp, v + (size_t)d * 4, step, L, inv, out + d, ldo);
    if constexpr (N > 1) values<P, R, N - 1>(p, ldp, v, step, L, D, d, inv, out, ldo);
}
// the rows i to i + R of L: their keys, values and scores begin at multiples of 16, so that a row's numbers do not depend on
// the others of its tile
template <class P, int R>
INLINE void attend_rows(int i, const typename P::A* q, size_t ld, const char* kt, const char* v, size_t v_step, int L, int Lp, int radius, int D, float* S, float* out, size_t ldo, float scale) {
    const int from = std::max(i - radius, 0) / 16 * 16, keys = std::min(i + R + radius, L) - from, width = (keys + 15) / 16 * 16;
    scores<P, R, std::min(NV, 3)>(q, ld, kt + (size_t)from * 4, Lp, D, 0, width, S);
    float inv[R];
    for (int r = 0; r < R; r++) {  // probabilities go where the scores were
        float* p = S + (size_t)r * width;
        typename P::A* to = (typename P::A*)p;
        const int first = std::max(i + r - radius, 0) - from, end = std::min(i + r + radius + 1, L) - from;  // of the row's own window
        const int start = first / W * W, full = end / W * W;
        for (int j = start; j < first; j++) p[j] = -1e30f;
        vf top = all(-1e30f), total = vf{};
        for (int j = start; j < full; j += W) top = vmax(top, load(p + j));
        if (full < end) top = vmax(top, first_lanes(load(p + full), end - full, -1e30f));
        const vf most = all(highest(top) * scale);
        auto power = [&](int j) {
            const vf x = load(p + j) * scale - most;
            return P::depth == 2 ? exp2_roughly(x) : exp2_of(x);
        };
        for (int j = start; j < full; j += W) {
            const vf e = power(j);
            total += e;
            store_as(to + j, e);
        }
        if (full < end) {
            const vf e = first_lanes(power(full), end - full, 0);
            total += e;
            store_as(to + full, e);
        }
        for (int j = 0; j < start; j += W) store_as(to + j, vf{});  // other rows of the tile see these
        for (int j = (end + W - 1) / W * W; j < keys; j += W) store_as(to + j, vf{});
        inv[r] = 1.f / sum(total);
    }
    const size_t ldp = (size_t)width * sizeof(float) / sizeof(typename P::A);
    values<P, R, 2>((const typename P::A*)S, ldp, v + (size_t)from / P::depth * v_step, v_step, (keys + P::depth - 1) / P::depth * P::depth, D, 0, inv, out, ldo);
}
template <class P, int R>
INLINE void attend_all_rows(int i, int end, const typename P::A* q, size_t ld, const char* kt, const char* v, size_t v_step, int L, int Lp, int radius, int D, float* S, float* out, size_t ldo, float scale) {
    for (; i + R <= end; i += R) attend_rows<P, R>(i, q + i * ld, ld, kt, v, v_step, L, Lp, radius, D, S, out + i * ldo, ldo, scale);
    if constexpr (R > 1) attend_all_rows<P, R / 2>(i, end, q, ld, kt, v, v_step, L, Lp, radius, D, S, out, ldo, scale);
}
// 32-bit words (floats, or pairs of bf16) of L rows, `words` a row -> transposed, Lp a row, zeros beyond L
void transpose(const int32_t* x, size_t ld, int L, int words, int Lp, int32_t* out) {
    for (int i = 0; i < Lp; i += 4)
        for (int d = 0; d < words; d += 4) {  // heads are multiples of 16 wide: 8 pairs
            int32_t* to = out + (size_t)d * Lp + i;
            const int32_t* from = x + (size_t)i * ld + d;
            if (i + 4 <= L) {
                transpose_4x4(from, ld, to, Lp);
                continue;
            }
            for (int r = 0; r < 4; r++)
                for (int c = 0; c < 4; c++) to[(size_t)c * Lp + r] = i + r < L ? four_bytes(from + r * ld + c) : 0;
        }
}
constexpr int AR = W == 16 ? 8 : W == 8 ? 6 : 3;  // rows of queries at a time
// the rows `first` to `end` of one sequence of L, in stripes of rows that share their keys and values
template <class P>
void attend(const typename P::A* qkv, int L, int first, int end, int radius, int A, int heads, float* out, char* work) {
    const int D = A / heads, stripe = radius < L ? std::max(2 * radius, 64) / AR * AR : L;
    const size_t ld = 3 * (size_t)A;
    const float scale = 1.44269504f / std::sqrt((float)D);
    for (int h = 0; h < heads; h++)
        for (int i = first; i < end; i += stripe) {
            const int stop = std::min(i + stripe, end), low = std::max(i - radius, 0) / 16 * 16, n = std::min(stop + radius, L) - low, Lp = (n + 15) / 16 * 16;
            const typename P::A *q = qkv + low * ld + h * D, *k = q + A, *v = q + 2 * A;
            char *kt = work, *pairs = kt + (size_t)D / P::depth * Lp * 4;
            float* S = (float*)(pairs + (P::depth == 2 ? (size_t)D / 2 * Lp * 4 + D * 4 : 0));
            transpose((const int32_t*)k, ld * sizeof(typename P::A) / 4, n, D / P::depth, Lp, (int32_t*)kt);
            const char* values = (const char*)v;
            size_t v_step = ld * sizeof(typename P::A);
            if constexpr (P::depth == 2) {  // two rows side by side: [n / 2][D][2]
                for (int j = 0; j < n; j += 2)
                    for (int d = 0; d < D; d += W) pair(v + j * ld + d, j + 1 < n ? v + (j + 1) * ld + d : nullptr, (int32_t*)pairs + (size_t)j / 2 * D + d);
                values = pairs, v_step = (size_t)D * 4;
            }
            attend_all_rows<P, AR>(i - low, stop - low, q, ld, kt, values, v_step, n, Lp, radius, D, S, out + (size_t)low * A + h * D, A, scale);
        }
}

// ---- a call ----------------------------------------------------------------------------------------------------------------
// The memory of a thread, kept for its next call
struct Arena {
    char* at = nullptr;
    size_t size = 0;
    char* of(size_t bytes) {
        if (bytes > size) {
            free(at);
            at = nullptr, size = 0;
            if (posix_memalign((void**)&at, 64, bytes)) return at = nullptr;
            size = bytes;
        }
        return at;
    }
    ~Arena() { free(at); }
};
thread_local Arena arena;

// Until all calls of a team are here; a core gives way where others wait for it
void meet(const Team& team, int32_t& round) {
    const int32_t wanted = ++round * team.parts;
    team.count->fetch_add(1, std::memory_order_acq_rel);
    for (int turns = 0; team.count->load(std::memory_order_acquire) < wanted; turns++) {
#if defined(__x86_64__)
        if (turns < 2000) { _mm_pause(); continue; }
#endif
#if defined(__unix__) || defined(__APPLE__)
        sched_yield();
#endif
    }
}
INLINE void give(const float* x, const Model& md, float* out) {
    if (!md.order) memcpy(out, x, (size_t)md.H * 4);
    else for (int k = 0; k < md.H; k++) out[md.order[k]] = x[k];
}

}  // namespace

// ---- what Python calls ---------------------------------------------------------------------------------------------------
extern "C" {

int32_t bertie_panel() { return NR; }
int32_t bertie_kinds() { return 1 << FLOAT | HAS_BF16 << HALF | 1 << BYTE; }
int32_t bertie_top() { return TOP; }
int32_t bertie_most() { return MOST; }

// rows of elements of `size` bytes (N, K) -> panels of NR columns, `depth` elements of a column side by side, zeros beyond N
void bertie_pack(const char* w, int32_t N, int32_t K, int32_t size, int32_t depth, char* out) {
    for (int64_t n = 0; n < (N + NR - 1) / NR * NR; n++)
        for (int64_t k = 0; k < K; k++) {
            char* to = out + ((n / NR * NR) * K + (k / depth) * NR * depth + (n % NR) * depth + k % depth) * size;
            if (n < N) memcpy(to, w + (n * K + k) * size, size);
            else memset(to, 0, size);
        }
}

// ids, types (or null), positions (T,); sequence b is ids[starts[b]:starts[b + 1]]; out (T, H), or (n, H) for MEANS and
// FIRSTS. team: null for a call that is alone. Returns 0, or 1 without memory
int32_t bertie_encode(const Model* model, const int32_t* ids, const int32_t* types, const int32_t* positions, const int32_t* starts, int32_t n, float* out, int32_t block, int32_t keep, const Team* team) {
    const Model& md = *model;
    const int T = starts[n], H = md.H, A = md.A, I = md.I, E = md.E, up = md.activation & GATED ? 2 * I : I, widest = std::max({H, A, I, E});
    const int part = team ? team->part : 0, parts = team ? team->parts : 1;
    const int from = (int64_t)T * part / parts, to = (int64_t)T * (part + 1) / parts;
    int mine = to - from;
    const size_t most = std::max(mine, n);
    size_t longest = 0;
    for (int b = 0; b < n; b++) longest = std::max(longest, (size_t)(starts[b + 1] - starts[b]));
    const size_t Lp = (longest + 15) / 16 * 16;
    size_t used = 0;
    auto take = [&](size_t bytes) { const size_t at = used; used += (bytes + 127) / 64 * 64; return at; };
    const size_t at_qkv = team ? 0 : take((size_t)T * 3 * A * element(md.attention)), at_x = team ? 0 : take((size_t)T * H * 4),
                 at_ctx = take(std::max(longest * A, most * E) * 4), at_mid = take((size_t)block * up * 4),
                 at_work = take(Lp * 128 * 8 + 1024 + Lp * AR * 4), at_rows = take(most * std::max({H, A, E}) * 4), at_scales = take(most * 8 * 4),
                 at_attended = A == H ? at_rows : take(most * A * 4),  // rows that are read later must not lie where wider ones are written
                 at_inner = take((size_t)block * I * 4), at_inner_scales = take((size_t)block * 8 * 4), at_row = take((size_t)widest * 4);
    char* memory = arena.of(used);
    if (!memory) {
        if (team) team->count->fetch_add(1 << 30);  // nobody waits for this call
        return 1;
    }
    int32_t round = 0;
    float *all = team ? team->x : (float*)(memory + at_x), *x = all + (size_t)from * H, *ctx = (float*)(memory + at_ctx), *mid = (float*)(memory + at_mid), *row = (float*)(memory + at_row),
          *scales = (float*)(memory + at_scales), *inner_scales = (float*)(memory + at_inner_scales);
    const Rows rows{memory + at_rows, scales, scales + 4 * most, most}, attended{memory + at_attended, rows.s, rows.m, most}, inner{memory + at_inner, inner_scales, inner_scales + 4 * (size_t)block, (size_t)block};
    // query, key and value of this call's rows; then attention of its rows, or of first rows, made ready while they are near
    auto attention = [&](auto* qkv, auto kind, Finish as, const Layer& y, bool firsts) {
        product(as, rows, 0, mine, y.qkv, qkv + (size_t)from * 3 * A, 3 * A);
        if (y.turns)
            for (int at = from; at < to; at++) turn(qkv + (size_t)at * 3 * A, 2 * A, A / md.heads, y.turns + (size_t)positions[at] * (A / md.heads));
        if (team) meet(*team, round);
        if (firsts && part) return;
        for (int b = 0, at = 0; b < n; b++) {
            const int start = starts[b], first = firsts ? 0 : std::max(from - start, 0), end = firsts ? 1 : std::min(to, starts[b + 1]) - start;
            if (first >= end) continue;
            attend<decltype(kind)>(qkv + (size_t)start * 3 * A, starts[b + 1] - start, first, end, y.radius, A, md.heads, ctx, memory + at_work);
            for (int i = first; i < end; i++) prepare(ctx + (size_t)i * A, y.out, attended, at++, row);
        }
    };

    // A row of the residual stream for the linear layer that reads it. Post-norm normalizes the row itself, pre-norm a copy
    auto ready = [&](Norm norm, const Linear& reader, int i) {
        float *own = x + (size_t)i * H, *y = md.pre ? row : own;
        if (norm.g) normalize(own, H, norm, md.eps, y);
        prepare(norm.g ? y : own, reader, rows, i, row);
    };

    float* embedded = md.project ? ctx : x;  // E may be smaller than H, never larger
    const Norm before = md.pre ? md.layers[0]->attention : Norm{};
    for (int i = 0; i < mine; i++) {
        const int at = from + i;
        const float *w = md.word + (size_t)ids[at] * E, *p = md.position ? md.position + (size_t)positions[at] * E : nullptr, *t = md.type ? md.type + (size_t)(types ? types[at] : 0) * E : nullptr;
        float* y = embedded + (size_t)i * E;
        for (int k = 0; k < E; k += W) {
            vf v = load(w + k);
            if (p) v += load(p + k);
            if (t) v += load(t + k);
            store(y + k, v);
        }
        normalize(y, E, md.embedded, md.eps, y);
        if (md.project) prepare(y, *md.project, rows, i, row);
        else ready(before, md.layers[0]->qkv, i);
    }
    if (md.project) {
        product(PLAIN, rows, 0, mine, *md.project, x, H);
        for (int i = 0; i < mine; i++) ready(before, md.layers[0]->qkv, i);
    }
    for (int l = 0; l < md.num_layers; l++) {
        const Layer& y = *md.layers[l];
        const bool last = l + 1 == md.num_layers, firsts = last && keep == FIRSTS;
        char* qkv = team ? team->qkv[l & 1] : memory + at_qkv;
#if HAS_BF16
        if (md.attention == HALF) attention((uint16_t*)qkv, Half{}, AS_HALF, y, firsts);
        else
#endif
            attention((float*)qkv, Float{}, PLAIN, y, firsts);
        if (firsts) {  // one call does what is left of them
            if (part) return 0;
            for (int b = 0; b < n; b++) memmove(all + (size_t)b * H, all + (size_t)starts[b] * H, (size_t)H * 4);
            mine = n;
        }
        for (int first = 0; first < mine; first += block) {
            const int M = std::min(block, mine - first);
            product(ADD, attended, first, M, y.out, x + (size_t)first * H, H);
            for (int i = first; i < first + M; i++) ready(md.pre ? y.fed : y.attention, y.up, i);
            product(PLAIN, rows, first, M, y.up, mid, up);
            for (int r = 0; r < M; r++) prepare(mid + (size_t)r * up, y.down, inner, r, row, md.activation);
            product(ADD, inner, 0, M, y.down, x + (size_t)first * H, H);
            for (int i = first; i < first + M; i++) {
                if (!last) ready(md.pre ? md.layers[l + 1]->attention : y.fed, md.layers[l + 1]->qkv, i);
                else if (const Norm norm = md.pre ? md.final : y.fed; norm.g) normalize(x + (size_t)i * H, H, norm, md.eps, x + (size_t)i * H);
            }
        }
    }
    if (keep != MEANS) {
        for (int i = 0; i < mine; i++) give(x + (size_t)i * H, md, out + ((size_t)from + i) * H);
        return 0;
    }
    if (team) meet(*team, round);
    for (int b = 0; b < n && !part; b++) {
        const float share = 1.f / (starts[b + 1] - starts[b]);
        for (int k = 0; k < H; k += W) {
            vf total = vf{};
            for (int i = starts[b]; i < starts[b + 1]; i++) total += load(all + (size_t)i * H + k);
            store(row + k, total * share);
        }
        give(row, md, out + (size_t)b * H);
    }
    return 0;
}
}
