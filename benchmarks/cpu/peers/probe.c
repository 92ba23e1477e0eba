/* Roofs, measured between the rows: multiply-adds and dot products in registers, silu in registers, reading and writing. */
#include <immintrin.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

#ifdef __AVX512F__
enum { BYTES = 64 };
#else
enum { BYTES = 32 };
#endif
typedef float v __attribute__((vector_size(BYTES)));
typedef int32_t vi __attribute__((vector_size(BYTES)));
enum { LANES = BYTES / 4, CHAINS = 12, BURSTS = 5 };

static inline v fma_step(v a, v x, v y) { return a * x + y; }
static inline v bf16_step(v a, v x, v y)
{
#ifdef __AVX512BF16__
    return (v)_mm512_dpbf16_ps((__m512)a, (__m512bh)x, (__m512bh)y);
#else
    return a;
#endif
}
static inline v int8_step(v a, v x, v y)
{
#ifdef __AVX512VNNI__
    return (v)_mm512_dpbusd_epi32((__m512i)a, (__m512i)x, (__m512i)y);
#else
    return a;
#endif
}

/* operations per second of `threads` threads, the best of a few bursts; 0 where the CPU has no such instruction */
#define PEAK(name, step, operations)                                                                       \
    double probe_##name(int threads)                                                                       \
    {                                                                                                      \
        double best = 0;                                                                                   \
        for (int burst = 0; burst < BURSTS; ++burst) {                                                     \
            double began = now();                                                                          \
            _Pragma("omp parallel num_threads(threads)")                                                   \
            {                                                                                              \
                v a[CHAINS], x = (v){0} + 0.999f, y = (v){0} + 1e-6f;                                      \
                for (int n = 0; n < CHAINS; ++n) a[n] = (v){0} + (float)n;                                 \
                for (long r = 0; r < 500000; ++r) {                                                        \
                    _Pragma("GCC unroll 12") for (int n = 0; n < CHAINS; ++n) a[n] = step(a[n], x, y);     \
                    __asm__ volatile("" : "+x"(x), "+x"(y));                                               \
                }                                                                                          \
                for (int n = 0; n < CHAINS; ++n) __asm__ volatile("" ::"x"(a[n]));                         \
            }                                                                                              \
            double rate = 5e5 * CHAINS * (operations) * threads / (now() - began);                         \
            if (rate > best) best = rate;                                                                  \
        }                                                                                                  \
        return best;                                                                                       \
    }

PEAK(fma, fma_step, 2 * LANES)
#ifdef __AVX512BF16__
PEAK(bf16, bf16_step, 4 * LANES)
#else
double probe_bf16(int threads) { return 0; }
#endif
#ifdef __AVX512VNNI__
PEAK(int8, int8_step, 8 * LANES)
#else
double probe_int8(int threads) { return 0; }
#endif

/* x / (1 + exp(-x)): exp by powers of two and a polynomial of degree 6, about the least that is right to 2 ulp */
static inline v silu(v x)
{
    const v magic = (v){0} + 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer, found in the low bits */
    v y = x * -1.44269504f + magic;
    v n = y - magic;
    v r = x * -1.0f - n * 0.693359375f + n * 2.12194440e-4f;
    v p = (((((r * 1.3981999e-3f + 8.3334519e-3f) * r + 4.1665796e-2f) * r + 0.16666666f) * r + 0.5f) * r + 1.0f) * r + 1.0f;
    return x / ((v)((vi)p + ((vi)y << 23)) + 1.0f);
}

/* values per second */
double probe_silu(int threads)
{
    double best = 0;
    for (int burst = 0; burst < BURSTS; ++burst) {
        double began = now();
#pragma omp parallel num_threads(threads)
        {
            v x[8];
            for (int n = 0; n < 8; ++n) x[n] = (v){0} + 0.1f * n;
            for (long r = 0; r < 100000; ++r)
#pragma GCC unroll 8
                for (int n = 0; n < 8; ++n) {
                    v one = x[n];
                    __asm__ volatile("" : "+x"(one));
                    one = silu(one);
                    __asm__ volatile("" ::"x"(one));
                }
        }
        double rate = 1e5 * 8 * LANES * threads / (now() - began);
        if (rate > best) best = rate;
    }
    return best;
}

static v *block;
static const long MOST = (1L << 28) / BYTES;

static inline void stream(v *to, v value)
{
#ifdef __AVX512F__
    _mm512_stream_ps((float *)to, (__m512)value);
#else
    _mm256_stream_ps((float *)to, (__m256)value);
#endif
}

/* One pass over `lines` vectors that are read, in `reads` rows; each row's sum is written, or none when reads is 0 */
static void pass(v *from, v *to, long lines, int reads, int streaming)
{
    long count = reads ? lines / reads : lines / 4;
    if (!reads) {
        v s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
#pragma omp for schedule(static) nowait
        for (long n = 0; n < count; ++n) {
            s0 += from[4 * n], s1 += from[4 * n + 1], s2 += from[4 * n + 2], s3 += from[4 * n + 3];
        }
        s0 += s1 + s2 + s3;
        __asm__ volatile("" ::"x"(s0));
        return;
    }
#pragma omp for schedule(static) nowait
    for (long n = 0; n < count; ++n) {
        v sum = from[n * reads];
        for (int r = 1; r < reads; ++r) sum += from[n * reads + r];
        if (streaming) stream(to + n, sum);
        else to[n] = sum;
    }
}

/* Bytes per second of `bytes` in all, reads : 1 (reading alone when reads is 0), with or without streaming stores: the better */
double probe_bytes(int threads, int reads, double bytes)
{
    if (!block) {
        block = aligned_alloc(1 << 21, 2 * MOST * BYTES);
        madvise(block, 2 * MOST * BYTES, MADV_HUGEPAGE); /* as NumPy does for the arrays of the rows */
        memset(block, 0, 2 * MOST * BYTES);
    }
    long lines = bytes / BYTES * (reads ? reads / (reads + 1.0) : 1);
    if (lines > MOST) lines = MOST;
    double moved = (double)lines * BYTES * (reads ? 1 + 1.0 / reads : 1), best = 0;
    int passes = 1 + (int)(2e8 / moved);
    if (passes > 50) passes = 50;
    for (int burst = 0; burst < 2 * BURSTS; ++burst) {
        double began = now();
#pragma omp parallel num_threads(threads)
        for (int n = 0; n < passes; ++n) pass(block, block + MOST, lines, reads, burst % 2);
        double rate = moved * passes / (now() - began);
        if (rate > best) best = rate;
    }
    return best;
}
