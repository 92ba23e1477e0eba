/* Rates of this CPU, one JSON object a line: {"name", "threads", "value"} in operations/s, bytes/s or s.
 *
 * Every rate is the best of several repeats: what the machine can do, not what it does on average. Needs GCC or Clang (vector
 * extensions) and OpenMP. Compiled twice: with -DSTRICT and without contraction it only defines the multiply-and-add loops.
 * argv: bytes of the first, second and third cache (as one thread sees them), most threads, seconds per rate.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif
#ifdef _OPENMP
#include <omp.h>
#endif
#ifdef __linux__
#include <sys/mman.h>
#endif

#if defined(__AVX512F__)
#define WIDTH 64
#elif defined(__AVX__)
#define WIDTH 32
#else
#define WIDTH 16
#endif
#if defined(__x86_64__) || defined(__i386__)
#define REGISTER "v"
#elif defined(__aarch64__)
#define REGISTER "w"
#else
#define REGISTER "m"
#endif
#define KEEP(x) __asm__ volatile("" : "+" REGISTER(x)) /* the compiler may not know its value */

typedef float vf __attribute__((vector_size(WIDTH), aligned(4), may_alias));
typedef double vd __attribute__((vector_size(WIDTH), aligned(8), may_alias));
typedef int32_t vi __attribute__((vector_size(WIDTH), aligned(4), may_alias));

/* Ten independent sums hide a latency of five at two a cycle; with two operands and a product they fit in sixteen registers.
 * The sums stay small: 2^-20 is added to 1 in each step. */
#define CHAINS(NAME, V, T)                                                                                                     \
    double NAME(long n) {                                                                                                      \
        V a = {0}, b = {0}, c0 = {1}, c1 = c0, c2 = c0, c3 = c0, c4 = c0, c5 = c0, c6 = c0, c7 = c0, c8 = c0, c9 = c0;         \
        a += (T)0x1p-10, b += (T)0x1p-10;                                                                                      \
        for (long i = 0; i < n; i++) {                                                                                         \
            KEEP(a);                                                                                                           \
            c0 += a * b; KEEP(b); c1 += a * b; KEEP(a); c2 += a * b; KEEP(b); c3 += a * b; KEEP(a); c4 += a * b; KEEP(b);      \
            c5 += a * b; KEEP(a); c6 += a * b; KEEP(b); c7 += a * b; KEEP(a); c8 += a * b; KEEP(b); c9 += a * b;               \
        }                                                                                                                      \
        c0 += c1 + c2 + c3 + c4 + c5 + c6 + c7 + c8 + c9;                                                                      \
        return (double)c0[0];                                                                                                  \
    }                                                                                                                          \
    double NAME##_ops(void) { return 2.0 * 10 * (WIDTH / sizeof(T)); }

#ifdef STRICT
CHAINS(mul_add_f32, vf, float)
CHAINS(mul_add_f64, vd, double)
#else
double mul_add_f32(long), mul_add_f64(long), mul_add_f32_ops(void), mul_add_f64_ops(void);
CHAINS(fma_f32, vf, float)
CHAINS(fma_f64, vd, double)

#if defined(__AVX512BF16__)
double dot_bf16(long n) {
    __m512bh a = (__m512bh)_mm512_set1_epi16(0x3a80), b = a;
    __m512 c[20];
    for (int k = 0; k < 20; k++) c[k] = _mm512_setzero_ps();
    for (long i = 0; i < n; i++) {
        KEEP(a);
#pragma GCC unroll 20
        for (int k = 0; k < 20; k++) c[k] = _mm512_dpbf16_ps(c[k], a, b);
    }
    for (int k = 1; k < 20; k++) c[0] += c[k];
    return (double)c[0][0];
}
double dot_bf16_ops(void) { return 2.0 * 20 * 32; }
#endif
#if defined(__AVX512VNNI__)
double dot_i8(long n) {
    __m512i a = _mm512_set1_epi8(1), b = a, c[20];
    for (int k = 0; k < 20; k++) c[k] = _mm512_setzero_si512();
    for (long i = 0; i < n; i++) {
        KEEP(a);
#if defined(__GNUC__) && !defined(__clang__) /* its intrinsic copies each accumulator to another register and back */
#pragma GCC unroll 20
        for (int k = 0; k < 20; k++) __asm__("vpdpbusd %2, %1, %0" : "+v"(c[k]) : "v"(a), "v"(b));
#else
#pragma GCC unroll 20
        for (int k = 0; k < 20; k++) c[k] = _mm512_dpbusd_epi32(c[k], a, b);
#endif
    }
    for (int k = 1; k < 20; k++) c[0] = _mm512_add_epi32(c[0], c[k]);
    return (double)_mm512_reduce_add_epi32(c[0]);
}
double dot_i8_ops(void) { return 2.0 * 20 * 64; }
#elif defined(__AVXVNNI__)
double dot_i8(long n) {
    __m256i a = _mm256_set1_epi8(1), b = a, c[10];
    for (int k = 0; k < 10; k++) c[k] = _mm256_setzero_si256();
    for (long i = 0; i < n; i++) {
        KEEP(a);
#pragma GCC unroll 10
        for (int k = 0; k < 10; k++) c[k] = _mm256_dpbusd_avx_epi32(c[k], a, b);
    }
    for (int k = 1; k < 10; k++) c[0] = _mm256_add_epi32(c[0], c[k]);
    return (double)_mm256_extract_epi32(c[0], 0);
}
double dot_i8_ops(void) { return 2.0 * 10 * 32; }
#endif

static volatile double sink;
static double budget = 0.1;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static void say(const char *name, int threads, double value) {
    printf("{\"name\": \"%s\", \"threads\": %d, \"value\": %.9g}\n", name, threads, value);
    fflush(stdout);
}

/* Run `statement` on every thread, `rounds` times each, from one barrier to the next; seconds of one round, the best of repeats. */
#define BEST(seconds, threads, rounds, statement)                                                                              \
    do {                                                                                                                       \
        int team_ = (threads);                                                                                                 \
        double until = now() + budget;                                                                                         \
        seconds = 1e30;                                                                                                        \
        for (int repeat_ = 0; repeat_ < 5 || now() < until; repeat_++) {                                                       \
            double began = 0, ended = 0;                                                                                       \
            _Pragma("omp parallel num_threads(team_)") {                                                                       \
                _Pragma("omp barrier") _Pragma("omp master") began = now();                                                    \
                _Pragma("omp barrier") for (long round_ = 0; round_ < (rounds); round_++) { statement; }                       \
                _Pragma("omp barrier") _Pragma("omp master") ended = now();                                                    \
            }                                                                                                                  \
            double one = (ended - began) / (rounds);                                                                           \
            if (one < seconds) seconds = one;                                                                                  \
        }                                                                                                                      \
    } while (0)

static void arithmetic(const char *name, int threads, double (*loop)(long), double ops) {
    double seconds;
    long n = 100000;
    BEST(seconds, threads, 1, sink = loop(n));
    say(name, threads, ops * n * threads / seconds);
}

static void *fresh(size_t bytes) {
    void *p = NULL;
    if (posix_memalign(&p, 1 << 21, bytes + (1 << 21))) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        exit(1);
    }
#ifdef MADV_HUGEPAGE
    madvise(p, bytes, MADV_HUGEPAGE); /* as NumPy asks for its arrays */
#endif
    return p;
}

static double read_all(const float *x, long n) {
    const long step = WIDTH / 4;
    vi s0 = {0}, s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0;
    for (long i = 0; i + 8 * step <= n; i += 8 * step) {
        s0 += *(const vi *)(x + i), s1 += *(const vi *)(x + i + step);
        s2 += *(const vi *)(x + i + 2 * step), s3 += *(const vi *)(x + i + 3 * step);
        s4 += *(const vi *)(x + i + 4 * step), s5 += *(const vi *)(x + i + 5 * step);
        s6 += *(const vi *)(x + i + 6 * step), s7 += *(const vi *)(x + i + 7 * step);
    }
    s0 += s1 + s2 + s3 + s4 + s5 + s6 + s7;
    return (double)s0[0];
}

static void store(float *to, vf v) { *(vf *)to = v; }
#if defined(__AVX512F__)
#define HAS_STREAM 1
static void stream(float *to, vf v) { _mm512_stream_ps(to, (__m512)v); }
#elif defined(__AVX__)
#define HAS_STREAM 1
static void stream(float *to, vf v) { _mm256_stream_ps(to, (__m256)v); }
#elif defined(__SSE__)
#define HAS_STREAM 1
static void stream(float *to, vf v) { _mm_stream_ps(to, (__m128)v); }
#endif

#define MOVES(SUFFIX, STORE)                                                                                                   \
    static void copy##SUFFIX(float *a, const float *b, const float *c, long n) {                                               \
        (void)c;                                                                                                               \
        for (long i = 0; i < n; i += WIDTH / 4) STORE(a + i, *(const vf *)(b + i));                                            \
    }                                                                                                                          \
    static void triad##SUFFIX(float *a, const float *b, const float *c, long n) {                                              \
        for (long i = 0; i < n; i += WIDTH / 4) STORE(a + i, *(const vf *)(b + i) + 3.0f * *(const vf *)(c + i));              \
    }
MOVES(, store)
#ifdef HAS_STREAM
MOVES(_stream, stream)
#endif

static int me(void) {
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

/* Each thread reads its own part again and again; `rounds` makes a repeat long enough for the clock. */
static void reading(const char *name, int threads, size_t bytes_each, float *x) {
    long n = bytes_each / 4 / (8 * WIDTH / 4) * (8 * WIDTH / 4), rounds = 1 + (4 << 20) / bytes_each;
    double seconds;
    BEST(seconds, threads, rounds, sink = read_all(x + me() * n, n));
    say(name, threads, 4.0 * n * threads / seconds);
}

static void moving(const char *name, int threads, void (*loop)(float *, const float *, const float *, long), int arrays, float **x,
                   size_t bytes) {
    long n = bytes / 4 / threads / 1024 * 1024;
    double seconds;
    BEST(seconds, threads, 1, loop(x[0] + me() * n, x[1] + me() * n, x[2] + me() * n, n));
    say(name, threads, 4.0 * arrays * n * threads / seconds);
}

static void latency(size_t bytes, void *memory) {
    /* One cycle through all lines in random order: every load waits for the one before. */
    size_t lines = bytes / 64, *at = memory;
    uint32_t *order = malloc(lines * sizeof *order);
    if (!order) exit(1);
    for (size_t i = 0; i < lines; i++) order[i] = i;
    uint64_t state = 88172645463325252ull;
    for (size_t i = lines - 1; i > 0; i--) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        size_t j = state % i;
        uint32_t t = order[i];
        order[i] = order[j], order[j] = t;
    }
    for (size_t i = 0; i < lines; i++) at[8 * order[i]] = 8 * (size_t)order[(i + 1) % lines];
    free(order);
    double best = 1e30;
    size_t p = 0;
    long steps = 200000;
    for (int repeat = 0; repeat < 5; repeat++) {
        double began = now();
        for (long i = 0; i < steps; i++) p = at[p];
        double one = (now() - began) / steps;
        if (one < best) best = one;
    }
    sink = (double)p;
    say("dram_latency", 1, best);
}

static double cycles(long n) {
    uint64_t x = 1;
    for (long i = 0; i < n; i++) {
        x += x;
#if defined(__x86_64__) || defined(__aarch64__)
        __asm__ volatile("" : "+r"(x));
#endif
    }
    return (double)x;
}

int main(int argc, char **argv) {
    if (argc != 6) return 2;
    size_t l1 = strtoull(argv[1], 0, 10), l2 = strtoull(argv[2], 0, 10), l3 = strtoull(argv[3], 0, 10);
    int most = atoi(argv[4]);
    budget = atof(argv[5]);
    double seconds;
    double cold, warm; /* the clock may still be low when the program starts */
    BEST(cold, 1, 1, sink = cycles(1000000)); /* one dependent addition a cycle */
    size_t big = 4 * (l3 ? l3 : l2), least = 64u << 20, limit = 256u << 20;
    big = big < least ? least : big > limit ? limit : big;
    float *x[3];
    for (int k = 0; k < 3; k++) x[k] = fresh(big);
    for (int threads = 1; threads <= most; threads = threads < most && 2 * threads > most ? most : 2 * threads) {
        arithmetic("fma_f32", threads, fma_f32, fma_f32_ops());
        arithmetic("fma_f64", threads, fma_f64, fma_f64_ops());
        arithmetic("mul_add_f32", threads, mul_add_f32, mul_add_f32_ops());
        arithmetic("mul_add_f64", threads, mul_add_f64, mul_add_f64_ops());
#if defined(__AVX512BF16__)
        arithmetic("dot_bf16", threads, dot_bf16, dot_bf16_ops());
#endif
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
        arithmetic("dot_i8", threads, dot_i8, dot_i8_ops());
#endif
        size_t share = big / threads / 8192 * 8192;
#pragma omp parallel num_threads(threads)
        for (int k = 0; k < 3; k++) { /* each thread touches its part first; the values stay finite */
            float *mine = x[k] + me() * (share / 4);
            for (size_t i = 0; i < share / 4; i++) mine[i] = 1.0f;
        }
        reading("read_l1", threads, l1 / 2, x[0]);
        reading("read_l2", threads, l2 / 2 > 2 * l1 ? l2 / 2 : 2 * l1, x[0]);
        if (l3) {
            size_t part = l3 / 2 / threads;
            reading("read_l3", threads, part > 8 * l2 ? 8 * l2 : part > 2 * l2 ? part : 2 * l2, x[0]);
        }
        reading("read", threads, share, x[0]);
        moving("copy", threads, copy, 2, x, big);
        moving("triad", threads, triad, 3, x, big);
#ifdef HAS_STREAM
        moving("copy_stream", threads, copy_stream, 2, x, big);
        moving("triad_stream", threads, triad_stream, 3, x, big);
#endif
#ifdef _OPENMP
        double best = 1e30, until = now() + budget;
        for (int repeat = 0; repeat < 5 || now() < until; repeat++) {
            double began = now();
            for (int k = 0; k < 100; k++) {
#pragma omp parallel num_threads(threads)
                { __asm__ volatile("" ::: "memory"); }
            }
            double one = (now() - began) / 100;
            if (one < best) best = one;
        }
        say("region", threads, best);
        BEST(seconds, threads, 100, _Pragma("omp barrier"));
        say("barrier", threads, seconds);
#endif
        if (threads == most) break;
    }
    BEST(warm, 1, 1, sink = cycles(1000000));
    say("clock", 1, 1000000 / (warm < cold ? warm : cold));
    latency(big, x[0]);
    return 0;
}

void tilec_empty(void *a, void *b, void *c) { (void)a, (void)b, (void)c; } /* the cost of a call */
#endif
