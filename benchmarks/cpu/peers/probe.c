/* Roofs, measured between the rows: multiply-adds in registers; reading, and copying past the caches. */
#include <immintrin.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

#ifdef __AVX512F__
typedef float v __attribute__((vector_size(64)));
#else
typedef float v __attribute__((vector_size(32)));
#endif
#define LANES (sizeof(v) / 4)

/* flop/s of `threads` threads, the best of a few bursts */
double probe_fma(int threads)
{
    double best = 0;
    for (int burst = 0; burst < 5; ++burst) {
        double began = now();
#pragma omp parallel num_threads(threads)
        {
            v a[12], x, y;
            for (int n = 0; n < 12; ++n) a[n] = (v){0} + (float)n;
            x = (v){0} + 0.999f, y = (v){0} + 1e-6f;
            for (long r = 0; r < 1000000; ++r) {
#pragma GCC unroll 12
                for (int n = 0; n < 12; ++n) a[n] = a[n] * x + y;
                __asm__ volatile("" : "+x"(x), "+x"(y));
            }
            for (int n = 0; n < 12; ++n) __asm__ volatile("" ::"x"(a[n]));
        }
        double rate = 1e6 * 12 * 2 * LANES * threads / (now() - began);
        if (rate > best) best = rate;
    }
    return best;
}

static v *block;
static const long N = 1L << 22; /* vectors: 128 or 256 MB */

/* bytes/s read */
double probe_read(int threads)
{
    if (!block) {
        block = aligned_alloc(64, N * sizeof(v));
        for (long n = 0; n < N; ++n) block[n] = (v){0} + 1;
    }
    double best = 0;
    for (int burst = 0; burst < 3; ++burst) {
        double began = now();
#pragma omp parallel num_threads(threads)
        {
            v s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
#pragma omp for schedule(static)
            for (long n = 0; n < N; n += 4) s0 += block[n], s1 += block[n + 1], s2 += block[n + 2], s3 += block[n + 3];
            s0 += s1 + s2 + s3;
            __asm__ volatile("" ::"x"(s0));
        }
        double rate = (double)N * sizeof(v) / (now() - began);
        if (rate > best) best = rate;
    }
    return best;
}

/* bytes/s read and written, with streaming stores */
double probe_copy(int threads)
{
    probe_read(threads);
    double best = 0;
    for (int burst = 0; burst < 3; ++burst) {
        double began = now();
#pragma omp parallel for schedule(static) num_threads(threads)
        for (long n = 0; n < N / 2; ++n)
#ifdef __AVX512F__
            _mm512_stream_ps((float *)&block[N / 2 + n], (__m512)block[n]);
#else
            _mm256_stream_ps((float *)&block[N / 2 + n], (__m256)block[n]);
#endif
        double rate = (double)N * sizeof(v) / (now() - began);
        if (rate > best) best = rate;
    }
    return best;
}
