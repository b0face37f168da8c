// The native encoder in a program of its own: a made-up model of the sizes given, the hidden states on standard output.
//
//     native_driver KIND H I E HEADS LAYERS ACTIVATION RADIUS LENGTH LENGTH ...      KIND: 0 float32, 1 bf16, 2 int8
//
// RADIUS: 0 for BERT's layers; else ModernBERT's, every second one of which has a window of this radius.
//
// For what a Python process cannot do: sanitizers, and emulated processors. Every array is allocated
// at its exact size, so that a sanitizer sees each element read beyond it.
#include "encoder.cpp"

#include <cstdio>
#include <thread>
#include <vector>

static uint32_t state = 1;
static float uniform() { state = state * 1664525u + 1013904223u; return (float)(state >> 8) / (1 << 23) - 1; }

template <class T>
static T* aligned(size_t n) {
    void* p;
    if (posix_memalign(&p, 64, n * sizeof(T))) exit(2);
    return (T*)p;
}
static float* numbers(size_t n, float width, float middle = 0) {
    float* p = aligned<float>(n);
    for (size_t i = 0; i < n; i++) p[i] = middle + width * uniform();
    return p;
}
static uint16_t half(float x) {
    uint32_t b;
    memcpy(&b, &x, 4);
    return (uint16_t)((b + 0x7fff + (b >> 16 & 1)) >> 16);
}

static Linear linear(int N, int K, int kind) {
    const int padded = (N + NR - 1) / NR * NR, G = kind == BYTE && K % 64 == 0 ? 2 : 1;
    Linear w{};
    w.N = N, w.K = K, w.kind = kind, w.G = G, w.size[0] = G == 2 ? K - 32 : K, w.size[1] = 32;
    const float* weights = numbers((size_t)N * K, 1.5f / std::sqrt((float)K));
    float *bias = aligned<float>(padded), *scale = aligned<float>((size_t)G * padded), *wsum = aligned<float>((size_t)G * padded);
    std::fill(bias, bias + padded, 0.f), std::fill(scale, scale + (size_t)G * padded, 0.f), std::fill(wsum, wsum + (size_t)G * padded, 0.f);
    for (int n = 0; n < N; n++) bias[n] = .1f * uniform();
    std::vector<int8_t> bytes((size_t)N * K);
    std::vector<uint16_t> halves((size_t)N * K);
    const float step = 1.5f / std::sqrt((float)K) / 64;  // so that four weights never make more than AVX2 can add
    for (int n = 0; n < N; n++)
        for (int k = 0; k < K; k++) {
            const size_t i = (size_t)n * K + k;
            bytes[i] = (int8_t)std::lrint(weights[i] / step), halves[i] = half(weights[i]);
            const int g = G == 2 && k >= K - 32;
            scale[(size_t)g * padded + n] = step, wsum[(size_t)g * padded + n] += step * bytes[i];
        }
    const int size = kind == BYTE ? 1 : kind == HALF ? 2 : 4, depth = 4 / size;
    char* panels = aligned<char>((size_t)padded * K * size);
    bertie_pack(kind == BYTE ? (const char*)bytes.data() : kind == HALF ? (const char*)halves.data() : (const char*)weights, N, K, size, depth, panels);
    float *inv = aligned<float>(K), *off = aligned<float>(K);
    std::fill(inv, inv + K, 1.f), std::fill(off, off + K, 0.f);
    w.panels = panels, w.bias = bias, w.scale = scale, w.wsum = wsum, w.inv = inv, w.off = off;
    return w;
}

int main(int argc, char** argv) {
    if (argc < 10) return 2;
    const int kind = atoi(argv[1]), H = atoi(argv[2]), I = atoi(argv[3]), E = atoi(argv[4]), D = H / atoi(argv[5]), activation = atoi(argv[7]), radius = atoi(argv[8]), vocab = 50;
    std::vector<int32_t> starts{0};
    int longest = 0;
    for (int i = 9; i < argc; i++) starts.push_back(starts.back() + atoi(argv[i])), longest = std::max(longest, atoi(argv[i]));
    if (!(bertie_kinds() >> kind & 1)) return 3;
    Model md{};
    md.word = numbers((size_t)vocab * E, 1), md.position = radius ? nullptr : numbers((size_t)longest * E, 1), md.type = numbers(2 * E, 1);
    auto norm = [](int size) { const float* g = numbers(size, .2f, 1); return Norm{g, numbers(size, .2f)}; };
    md.embedded = norm(E), md.pre = radius > 0;
    if (md.pre) md.final = norm(H);
    const float* turns = radius ? numbers((size_t)longest * D, 1) : nullptr;  // of no angle, but read as any
    const Linear project = linear(H, E, kind);
    md.project = E == H ? nullptr : &project;
    std::vector<Layer> layers;
    for (int l = 0; l < atoi(argv[6]); l++) {
        Layer y{linear(3 * H, H, kind), linear(H, H, kind), linear(activation & GATED ? 2 * I : I, H, kind), linear(H, I, kind)};
        if (l || !radius) y.attention = norm(H);
        y.fed = norm(H), y.turns = turns, y.radius = l % 2 && radius ? radius : 1 << 30;
        layers.push_back(y);
    }
    std::vector<const Layer*> order;
    for (const Layer& y : layers) order.push_back(&y);
    md.layers = order.data(), md.num_layers = (int)order.size(), md.H = md.A = H, md.E = E, md.I = I, md.heads = atoi(argv[5]);
    md.activation = activation, md.attention = kind != FLOAT && HAS_BF16 ? HALF : FLOAT, md.eps = 1e-12f;
    const int T = starts.back();
    std::vector<int32_t> ids(T), types(T), positions(T);
    for (size_t b = 0; b + 1 < starts.size(); b++)
        for (int i = starts[b]; i < starts[b + 1]; i++) ids[i] = (i * 7 + 3) % vocab, types[i] = i & 1, positions[i] = i - starts[b];
    const int n = (int)starts.size() - 1;
    float *out = aligned<float>((size_t)T * H), *few = aligned<float>((size_t)n * H);
    for (int keep : {FIRSTS, MEANS})
        if (bertie_encode(&md, ids.data(), types.data(), positions.data(), starts.data(), n, few, 5, keep, nullptr)) return 4;
    // three threads on the same rows
    float* x = aligned<float>((size_t)T * H);
    char *qkv = aligned<char>((size_t)T * 3 * H * 4), *next = aligned<char>((size_t)T * 3 * H * 4);
    std::atomic<int32_t> count{0};
    std::vector<std::thread> threads;
    for (int part = 0; part < 3; part++)
        threads.emplace_back([&, part] {
            const Team team{x, {qkv, next}, &count, part, 3};
            if (bertie_encode(&md, ids.data(), types.data(), positions.data(), starts.data(), n, out, 5, TOKENS, &team)) exit(4);
        });
    for (std::thread& one : threads) one.join();
    std::vector<float> shared(out, out + (size_t)T * H);
    if (bertie_encode(&md, ids.data(), types.data(), positions.data(), starts.data(), n, out, 96, TOKENS, nullptr)) return 4;
    if (memcmp(shared.data(), out, shared.size() * 4)) return 5;  // a row's numbers do not depend on who computes it
    fwrite(out, 4, (size_t)T * H, stdout);
    return 0;
}
