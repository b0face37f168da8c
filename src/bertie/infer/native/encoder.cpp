// A BERT encoder on packed sequences: token ids in, hidden states out. One call is one thread; nothing is padded.
//
// A call takes a chunk of sequences through all layers, so that activations stay in the cache and threads never wait for
// each other. Linear layers are float32, bf16 or int8, each as it was prepared. In int8, rows are quantized as they are
// written, asymmetrically, per token and group of features: x ~ s q + m, weights w ~ t v, so that
// x w = s t sum(q v) + m t sum(v), and the second term is known beforehand. Attention multiplies in bf16 where the
// processor does, else in float32. Softmax, residuals, norms and activations are float32.
//
// Compiled once for each kind of processor (build.py). Widths are multiples of 16, heads up to 128 wide.
#include "vectors.h"

#include <algorithm>
#include <cstdlib>

namespace {

enum Kind { FLOAT, HALF, BYTE };
enum Activation { NONE, GELU, GELU_TANH, RELU, SILU };

struct Linear {          // 64-byte aligned arrays; N is rounded up to panels in all of them
    const char* panels;  // [N / NR][K / depth][NR][depth]
    const float* scale;  // [G][N] t, of int8
    const float* wsum;   // [G][N] t sum(v), of int8
    const float* bias;   // [N]
    const float *inv, *off;  // [K] the row that is quantized is x inv + off: smoothing and shift of each feature
    int32_t N, K, kind, G, size[4];  // G groups of features, each with scales of its own
};
struct Layer {
    Linear qkv, out, up, down;
    const float *g1, *b1, *g2, *b2;
};
struct Model {
    const float *word, *position, *type, *g0, *b0;  // E wide; type may be null
    const Linear* project;                          // E -> H, or null
    const Layer* const* layers;
    int32_t num_layers, H, E, I, heads, activation, attention;  // attention: FLOAT or HALF
    float eps;
};

// ---- activations -----------------------------------------------------------------------------------------------------
INLINE vf erf_of(vf x) {  // Abramowitz and Stegun 7.1.26: absolute error 1.5e-7
    const vf a = vmax(x, -x), t = 1.f / (a * .3275911f + 1.f);
    vf p = all(1.061405429f);
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - .284496736f;
    p = p * t + .254829592f;
    const vf y = 1.f - p * t * exp_of(-a * a);
    return x < 0 ? -y : y;
}
INLINE vf gelu_roughly(vf x) {  // x Phi(x) with an error below 2e-4: far below a step of 8 bits
    const vf y = vmax(vmin(x, all(4.f)), all(-4.f)), z = y * y;
    vf p = all(2.239052354e-08f);
    p = p * z - 1.57805195e-06f;
    p = p * z + 4.754024789e-05f;
    p = p * z - .00081000123f;
    p = p * z + .008753751334f;
    p = p * z - .06453763369f;
    p = p * z + .3978682373f;
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

template <int ACT>
INLINE void quantize(const float* x, const Linear& w, uint8_t* q, float* s, float* m, size_t stride, float* row) {
    for (int g = 0, from = 0; g < w.G; from += w.size[g++]) {
        const int to = from + w.size[g];
        vf lo = all(3e38f), hi = all(-3e38f);
        for (int k = from; k < to; k += W) {
            const vf v = activate<ACT, true>(load(x + k)) * load(w.inv + k) + load(w.off + k);
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
        for (int k = 0; k < w.K; k += W) store_half((uint16_t*)to + k, activate<ACT, false>(load(x + k)));
        return;
    }
#endif
    for (int k = 0; k < w.K; k += W) store((float*)to + k, activate<ACT, false>(load(x + k)));
}
void prepare(const float* x, const Linear& w, const Rows& rows, size_t i, float* row, int activation = NONE) {
    switch (activation) {
        case GELU: return prepare_as<GELU>(x, w, rows, i, row);
        case GELU_TANH: return prepare_as<GELU_TANH>(x, w, rows, i, row);
        case RELU: return prepare_as<RELU>(x, w, rows, i, row);
        case SILU: return prepare_as<SILU>(x, w, rows, i, row);
        default: return prepare_as<NONE>(x, w, rows, i, row);
    }
}
void normalize(const float* x, int H, const float* g, const float* b, float eps, float* y) {
    vf s = vf{}, ss = vf{};
    for (int k = 0; k < H; k += W) s += load(x + k);
    const float mean = sum(s) / H;
    for (int k = 0; k < H; k += W) { const vf d = load(x + k) - mean; ss += d * d; }
    const float r = 1.f / std::sqrt(sum(ss) / H + eps);
    for (int k = 0; k < H; k += W) store(y + k, (load(x + k) - mean) * r * load(g + k) + load(b + k));
}

// ---- products ----------------------------------------------------------------------------------------------------------
// K elements of R rows (a, lda apart) by NVT vectors of columns (b; `step` bytes to the next `depth` elements)
template <class P, int R, int NVT>
INLINE void multiply(const typename P::A* a, size_t lda, const char* b, size_t step, int K, typename P::Sum (&sums)[R][NVT]) {
    for (int k = 0; k < K; k += P::depth, b += step) {
        decltype(P::weights(b)) ws[NVT];
#pragma GCC unroll 8
        for (int j = 0; j < NVT; j++) ws[j] = P::weights(b + 4 * W * j);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            const auto x = P::row(a + r * lda + k);
#pragma GCC unroll 8
            for (int j = 0; j < NVT; j++) P::add(sums[r][j], x, ws[j]);
        }
    }
}

enum Finish { PLAIN, ADD, AS_HALF };  // ADD: onto what is there, the residual
INLINE void store_as(float* p, vf v) { store(p, v); }
INLINE void store_as(uint16_t* p, vf v) { store_half(p, v); }

template <class P, int R, int FINISH>
INLINE void tile(const typename P::A* a, const float* s, const float* m, size_t stride, const Linear& w, int n, char* out, int ldc) {
    const int padded = (w.N + NR - 1) / NR * NR;
    const char* b = w.panels + (size_t)n * w.K * element(w.kind);
    constexpr size_t step = (size_t)NR * P::depth * sizeof(typename P::A);
    float found[R][NR] __attribute__((aligned(64)));
    for (int g = 0, k = 0; g < w.G; k += w.size[g++]) {
        typename P::Sum sums[R][NV];
#pragma GCC unroll 8
        for (int r = 0; r < R; r++)
#pragma GCC unroll 8
            for (int j = 0; j < NV; j++) sums[r][j] = typename P::Sum{};
        multiply<P, R, NV>(a + k, w.K, b + k / P::depth * step, step, w.size[g], sums);
#pragma GCC unroll 8
        for (int j = 0; j < NV; j++) {
            const int at = n + W * j;
            if (w.kind != BYTE) {
                const vf bias = load(w.bias + at);
#pragma GCC unroll 8
                for (int r = 0; r < R; r++) store(&found[r][W * j], (vf)sums[r][j] + bias);
                continue;
            }
            const vf t = load(w.scale + (size_t)g * padded + at), v = load(w.wsum + (size_t)g * padded + at);
#pragma GCC unroll 8
            for (int r = 0; r < R; r++) {
                const vf before = g ? load(&found[r][W * j]) : load(w.bias + at);
                store(&found[r][W * j], before + v * m[g * stride + r] + __builtin_convertvector((vi)sums[r][j], vf) * (t * s[g * stride + r]));
            }
        }
    }
    const int columns = std::min(NR, w.N - n);  // multiples of 16, so of W
    for (int r = 0; r < R; r++)
        for (int j = 0; j < columns; j += W) {
            const size_t at = (size_t)r * ldc + n + j;
            const vf f = load(&found[r][j]);
            if constexpr (FINISH == PLAIN) store((float*)out + at, f);
            else if constexpr (FINISH == ADD) store((float*)out + at, f + load((float*)out + at));
            else store_as((typename Half::A*)out + at, f);
        }
}
template <class P, int FINISH, int R>
INLINE void rest(int left, const typename P::A* a, const float* s, const float* m, size_t stride, const Linear& w, int n, char* out, int ldc) {
    if constexpr (R > 0) {
        if (left == R) return tile<P, R, FINISH>(a, s, m, stride, w, n, out, ldc);
        rest<P, FINISH, R - 1>(left, a, s, m, stride, w, n, out, ldc);
    }
}
template <class P, int FINISH>
void product_of(const Rows& x, size_t first, int M, const Linear& w, char* out, int ldc) {
    constexpr size_t size = FINISH == AS_HALF ? 2 : 4;
    const typename P::A* a = (const typename P::A*)x.data + first * w.K;
    const float *s = x.s + first, *m = x.m + first;
    for (int n = 0; n < w.N; n += NR) {
        int i = 0;
        for (; i + MR <= M; i += MR) tile<P, MR, FINISH>(a + (size_t)i * w.K, s + i, m + i, x.stride, w, n, out + (size_t)i * ldc * size, ldc);
        rest<P, FINISH, MR - 1>(M - i, a + (size_t)i * w.K, s + i, m + i, x.stride, w, n, out + (size_t)i * ldc * size, ldc);
    }
}
template <int FINISH>
void product(const Rows& x, size_t first, int M, const Linear& w, void* out, int ldc) {
    if (w.kind == BYTE) return product_of<Byte, FINISH>(x, first, M, w, (char*)out, ldc);
#if HAS_BF16
    if (w.kind == HALF) return product_of<Half, FINISH>(x, first, M, w, (char*)out, ldc);
#endif
    product_of<Float, FINISH>(x, first, M, w, (char*)out, ldc);
}

// ---- attention of one sequence, its products in P: float32 or bf16 -------------------------------------------------------------
template <class P, int R, int NVT>
INLINE void scores_tile(const typename P::A* q, size_t ld, const char* kt, int Lp, int D, int j, float* S, float scale) {
    vf sums[R][NVT] = {};
    multiply<P, R, NVT>(q, ld, kt + (size_t)j * 4, (size_t)Lp * 4, D, sums);
    for (int r = 0; r < R; r++)
        for (int c = 0; c < NVT; c++) store(S + (size_t)r * Lp + j + W * c, sums[r][c] * scale);
}
template <class P, int R, int NVT>
INLINE void values_tile(const typename P::A* p, size_t ldp, const char* v, size_t step, int L, const float* inv, float* out, size_t ldo) {
    vf sums[R][NVT] = {};
    multiply<P, R, NVT>(p, ldp, v, step, L, sums);
    for (int r = 0; r < R; r++)
        for (int c = 0; c < NVT; c++) store(out + r * ldo + W * c, sums[r][c] * inv[r]);
}
// all columns in tiles of NV vectors, then what is left of them
template <int N, class F>
INLINE void by_vectors(int width, F f) {
    int j = 0;
    for (; j + N * W <= width; j += N * W) f(j, std::integral_constant<int, N>{});
    if constexpr (N > 1) {
        if (j < width) by_vectors<N - 1>(width - j, [&](int i, auto n) { f(j + i, n); });
    }
}
template <class P, int R>
INLINE void attend_rows(const typename P::A* q, size_t ld, const char* kt, const char* v, size_t v_step, int L, int Lp, int D, float* S, float* out, size_t ldo, float scale) {
    by_vectors<std::min(NV, 3)>(Lp, [&](int j, auto n) { scores_tile<P, R, decltype(n)::value>(q, ld, kt, Lp, D, j, S, scale); });
    float inv[R];
    for (int r = 0; r < R; r++) {  // probabilities go where the scores were
        float* p = S + (size_t)r * Lp;
        for (int j = L; j < Lp; j++) p[j] = -1e30f;
        vf top = load(p), total = vf{};
        for (int j = W; j < Lp; j += W) top = vmax(top, load(p + j));
        const float most = highest(top);
        for (int j = 0; j < Lp; j += W) {
            const vf e = exp2_of(load(p + j) - most);
            total += e;
            store_as((typename P::A*)p + j, e);
        }
        for (int j = L; j < Lp; j++) ((typename P::A*)p)[j] = 0;  // 2^-126 otherwise
        inv[r] = 1.f / sum(total);
    }
    const size_t ldp = (size_t)Lp * sizeof(float) / sizeof(typename P::A);
    by_vectors<std::min(NV, 4)>(D, [&](int d, auto n) {
        values_tile<P, R, decltype(n)::value>((const typename P::A*)S, ldp, v + (size_t)d * 4, v_step, (L + P::depth - 1) / P::depth * P::depth, inv, out + d, ldo);
    });
}
template <class P, int R>
INLINE void attend_rest(int left, const typename P::A* q, size_t ld, const char* kt, const char* v, size_t v_step, int L, int Lp, int D, float* S, float* out, size_t ldo, float scale) {
    if constexpr (R > 0) {
        if (left == R) return attend_rows<P, R>(q, ld, kt, v, v_step, L, Lp, D, S, out, ldo, scale);
        attend_rest<P, R - 1>(left, q, ld, kt, v, v_step, L, Lp, D, S, out, ldo, scale);
    }
}
// 32-bit words (floats, or pairs of bf16) of L rows, `words` a row -> transposed, Lp a row, zeros beyond L
void transpose(const int32_t* x, size_t ld, int L, int words, int Lp, int32_t* out) {
    for (int i0 = 0; i0 < Lp; i0 += 16)
        for (int d = 0; d < words; d++) {
            int32_t* to = out + (size_t)d * Lp + i0;
            const int n = std::min(16, L - i0);
            for (int i = 0; i < n; i++) memcpy(to + i, (const char*)(x + (size_t)(i0 + i) * ld) + 4 * d, 4);
            for (int i = std::max(n, 0); i < 16; i++) to[i] = 0;
        }
}
constexpr int AR = W == 16 ? 8 : W == 8 ? 4 : 3;  // rows of queries at a time
template <class P>
void attend(const typename P::A* qkv, int L, int H, int heads, float* out, char* work) {
    const int D = H / heads, Lp = (L + 15) / 16 * 16;
    const size_t ld = 3 * (size_t)H;
    const float scale = 1.44269504f / std::sqrt((float)D);
    char *kt = work, *pairs = kt + (size_t)D / P::depth * Lp * 4;
    float* S = (float*)(pairs + (P::depth == 2 ? (size_t)D / 2 * Lp * 4 + D * 4 : 0));
    for (int h = 0; h < heads; h++) {
        const typename P::A *q = qkv + h * D, *k = q + H, *v = q + 2 * H;
        transpose((const int32_t*)k, ld * sizeof(typename P::A) / 4, L, D / P::depth, Lp, (int32_t*)kt);
        const char* values = (const char*)v;
        size_t v_step = ld * sizeof(typename P::A);
        if constexpr (P::depth == 2) {  // two rows side by side: [L / 2][D][2]
            for (int i = 0; i < L; i += 2)
                for (int d = 0; d < D; d++) {
                    typename P::A* to = (typename P::A*)pairs + (size_t)i * D + 2 * d;
                    to[0] = v[i * ld + d], to[1] = i + 1 < L ? v[(i + 1) * ld + d] : 0;
                }
            values = pairs, v_step = (size_t)D * 4;
        }
        int i = 0;
        for (; i + AR <= L; i += AR) attend_rows<P, AR>(q + i * ld, ld, kt, values, v_step, L, Lp, D, S, out + (size_t)i * H + h * D, H, scale);
        attend_rest<P, AR - 1>(L - i, q + i * ld, ld, kt, values, v_step, L, Lp, D, S, out + (size_t)i * H + h * D, H, scale);
    }
}

}  // namespace

// ---- what Python calls ---------------------------------------------------------------------------------------------------
extern "C" {

int32_t bertie_panel() { return NR; }
int32_t bertie_kinds() { return 1 << FLOAT | HAS_BF16 << HALF | 1 << BYTE; }
int32_t bertie_top() { return TOP; }

// rows of elements of `size` bytes (N, K) -> panels of NR columns, `depth` elements of a column side by side, zeros beyond N
void bertie_pack(const char* w, int32_t N, int32_t K, int32_t size, int32_t depth, char* out) {
    for (int64_t n = 0; n < (N + NR - 1) / NR * NR; n++)
        for (int64_t k = 0; k < K; k++) {
            char* to = out + ((n / NR * NR) * K + (k / depth) * NR * depth + (n % NR) * depth + k % depth) * size;
            if (n < N) memcpy(to, w + (n * K + k) * size, size);
            else memset(to, 0, size);
        }
}

// ids, types (or null), positions (T,); sequence b is ids[starts[b]:starts[b + 1]]; out (T, H). Returns 0, or 1 without memory
int32_t bertie_encode(const Model* model, const int32_t* ids, const int32_t* types, const int32_t* positions, const int32_t* starts, int32_t n, float* out, int32_t block) {
    const Model& md = *model;
    const int T = starts[n], H = md.H, I = md.I, E = md.E, widest = std::max({H, I, E});
    size_t longest = 0;
    for (int b = 0; b < n; b++) longest = std::max(longest, (size_t)(starts[b + 1] - starts[b]));
    const size_t Lp = (longest + 15) / 16 * 16;
    size_t used = 0;
    auto take = [&](size_t bytes) { const size_t at = used; used += (bytes + 127) / 64 * 64; return at; };
    const size_t at_qkv = take((size_t)T * 3 * H * element(md.attention)), at_ctx = take((size_t)T * H * 4), at_mid = take((size_t)block * I * 4),
                 at_work = take(Lp * 128 * 8 + 1024 + Lp * AR * 4), at_rows = take((size_t)T * std::max(H, E) * 4), at_scales = take((size_t)T * 8 * 4),
                 at_inner = take((size_t)block * I * 4), at_inner_scales = take((size_t)block * 8 * 4), at_row = take((size_t)widest * 4);
    char* memory = nullptr;
    if (posix_memalign((void**)&memory, 64, used)) return 1;
    float *x = out, *ctx = (float*)(memory + at_ctx), *mid = (float*)(memory + at_mid), *row = (float*)(memory + at_row), *scales = (float*)(memory + at_scales), *inner_scales = (float*)(memory + at_inner_scales);
    char* qkv = memory + at_qkv;
    auto attend_all = [&](auto* read, auto kind) {
        for (int b = 0; b < n; b++) attend<decltype(kind)>(read + (size_t)starts[b] * 3 * H, starts[b + 1] - starts[b], H, md.heads, ctx + (size_t)starts[b] * H, memory + at_work);
    };
    const Rows rows{memory + at_rows, scales, scales + 4 * (size_t)T, (size_t)T}, inner{memory + at_inner, inner_scales, inner_scales + 4 * (size_t)block, (size_t)block};

    float* embedded = md.project ? ctx : x;  // E may be smaller than H, never larger
    for (int i = 0; i < T; i++) {
        const float *w = md.word + (size_t)ids[i] * E, *p = md.position + (size_t)positions[i] * E, *t = md.type ? md.type + (size_t)(types ? types[i] : 0) * E : nullptr;
        float* y = embedded + (size_t)i * E;
        for (int k = 0; k < E; k += W) store(y + k, t ? load(w + k) + load(p + k) + load(t + k) : load(w + k) + load(p + k));
        normalize(y, E, md.g0, md.b0, md.eps, y);
        prepare(y, md.project ? *md.project : md.layers[0]->qkv, rows, i, row);
    }
    if (md.project) {
        product<PLAIN>(rows, 0, T, *md.project, x, H);
        for (int i = 0; i < T; i++) prepare(x + (size_t)i * H, md.layers[0]->qkv, rows, i, row);
    }
    for (int l = 0; l < md.num_layers; l++) {
        const Layer& y = *md.layers[l];
#if HAS_BF16
        if (md.attention == HALF) {
            product<AS_HALF>(rows, 0, T, y.qkv, qkv, 3 * H);
            attend_all((const uint16_t*)qkv, Half{});
        } else
#endif
        {
            product<PLAIN>(rows, 0, T, y.qkv, qkv, 3 * H);
            attend_all((const float*)qkv, Float{});
        }
        for (int first = 0; first < T; first += block) {
            const int M = std::min(block, T - first);
            for (int i = first; i < first + M; i++) prepare(ctx + (size_t)i * H, y.out, rows, i, row);
            product<ADD>(rows, first, M, y.out, x + (size_t)first * H, H);
            for (int i = first; i < first + M; i++) {
                normalize(x + (size_t)i * H, H, y.g1, y.b1, md.eps, x + (size_t)i * H);
                prepare(x + (size_t)i * H, y.up, rows, i, row);
            }
            product<PLAIN>(rows, first, M, y.up, mid, I);
            for (int r = 0; r < M; r++) prepare(mid + (size_t)r * I, y.down, inner, r, row, md.activation);
            product<ADD>(inner, 0, M, y.down, x + (size_t)first * H, H);
            for (int i = first; i < first + M; i++) {
                normalize(x + (size_t)i * H, H, y.g2, y.b2, md.eps, x + (size_t)i * H);
                if (l + 1 < md.num_layers) prepare(x + (size_t)i * H, md.layers[l + 1]->qkv, rows, i, row);
            }
        }
    }
    free(memory);
    return 0;
}
}
