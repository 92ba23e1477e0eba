/* The plain loops that a person writes first, for gcc -O3 -march=native -ffast-math -fopenmp. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint16_t bf16; /* the upper half of a float */

static inline float load(bf16 x)
{
    uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

static inline bf16 store(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

static inline float silu(float x) { return x / (1 + expf(-x)); }

static inline int8_t quantized(float v)
{
    v = rintf(v);
    return (int8_t)(v < -128 ? -128 : v > 127 ? 127 : v);
}

void gemm_silu(const float *restrict A, const float *restrict W, float *restrict Y, long M, long N, long K)
{
    if (M == 1) { /* one row is shared out by columns */
#pragma omp parallel for
        for (long j0 = 0; j0 < N; j0 += 1024) {
            long end = j0 + 1024 < N ? j0 + 1024 : N;
            for (long j = j0; j < end; ++j) Y[j] = 0;
            for (long k = 0; k < K; ++k)
                for (long j = j0; j < end; ++j) Y[j] += A[k] * W[k * N + j];
            for (long j = j0; j < end; ++j) Y[j] = silu(Y[j]);
        }
        return;
    }
#pragma omp parallel for
    for (long i = 0; i < M; ++i) {
        for (long j = 0; j < N; ++j) Y[i * N + j] = 0;
        for (long k = 0; k < K; ++k)
            for (long j = 0; j < N; ++j) Y[i * N + j] += A[i * K + k] * W[k * N + j];
        for (long j = 0; j < N; ++j) Y[i * N + j] = silu(Y[i * N + j]);
    }
}

void gemm_silu_bf16(const bf16 *restrict A, const bf16 *restrict W, bf16 *restrict Y, long M, long N, long K)
{
#pragma omp parallel
    {
        float *row = calloc(N, sizeof(float));
#pragma omp for
        for (long i = 0; i < M; ++i) {
            memset(row, 0, N * sizeof(float));
            for (long k = 0; k < K; ++k)
                for (long j = 0; j < N; ++j) row[j] += load(A[i * K + k]) * load(W[k * N + j]);
            for (long j = 0; j < N; ++j) Y[i * N + j] = store(silu(load(store(row[j]))));
        }
        free(row);
    }
}

void rmsnorm(const float *restrict X, const float *restrict G, float *restrict Y, long M, long K, float eps)
{
#pragma omp parallel for
    for (long i = 0; i < M; ++i) {
        float s = 0;
        for (long k = 0; k < K; ++k) s += X[i * K + k] * X[i * K + k];
        float r = 1 / sqrtf(s / K + eps);
        for (long k = 0; k < K; ++k) Y[i * K + k] = X[i * K + k] * r * G[k];
    }
}

void softmax(const float *restrict X, float *restrict Y, long M, long N)
{
#pragma omp parallel for
    for (long i = 0; i < M; ++i) {
        float m = -INFINITY, t = 0;
        for (long j = 0; j < N; ++j) m = X[i * N + j] > m ? X[i * N + j] : m;
        for (long j = 0; j < N; ++j) Y[i * N + j] = expf(X[i * N + j] - m);
        for (long j = 0; j < N; ++j) t += Y[i * N + j];
        for (long j = 0; j < N; ++j) Y[i * N + j] /= t;
    }
}

void attention(const float *restrict Q, const float *restrict K, const float *restrict V, float *restrict Y, long M, long N,
               long D, float scale)
{
#pragma omp parallel
    {
        float *e = calloc(N, sizeof(float));
#pragma omp for
        for (long i = 0; i < M; ++i) {
            float m = -INFINITY, t = 0;
            for (long j = 0; j < N; ++j) {
                float s = 0;
                for (long d = 0; d < D; ++d) s += Q[i * D + d] * K[j * D + d];
                e[j] = s * scale;
            }
            for (long j = 0; j < N; ++j) m = e[j] > m ? e[j] : m;
            for (long j = 0; j < N; ++j) e[j] = expf(e[j] - m);
            for (long j = 0; j < N; ++j) t += e[j];
            for (long d = 0; d < D; ++d) Y[i * D + d] = 0;
            for (long j = 0; j < N; ++j)
                for (long d = 0; d < D; ++d) Y[i * D + d] += e[j] * V[j * D + d];
            for (long d = 0; d < D; ++d) Y[i * D + d] /= t;
        }
        free(e);
    }
}

void chain_i8(const float *restrict G, const float *restrict U, int8_t *restrict Q, long M, long N, float inverse)
{
#pragma omp parallel for
    for (long i = 0; i < M * N; ++i) Q[i] = quantized(silu(G[i]) * U[i] * inverse);
}

void chain_i8_bf16(const bf16 *restrict G, const bf16 *restrict U, int8_t *restrict Q, long M, long N, float inverse)
{
#pragma omp parallel for
    for (long i = 0; i < M * N; ++i) Q[i] = quantized(silu(load(G[i])) * load(U[i]) * inverse);
}

/* E4M3 of the nearest even: normal numbers by their bits, subnormal ones by adding a power of two */
static inline uint8_t e4m3(float v)
{
    float a = fabsf(v);
    a = a > 448 ? 448 : a;
    float shifted = a + 16384;
    uint32_t bits, low, sign;
    memcpy(&bits, &a, 4), memcpy(&low, &shifted, 4), memcpy(&sign, &v, 4);
    uint32_t normal = (bits + 0x7ffff + (bits >> 20 & 1)) >> 20;
    return (a < 0.015625f ? low - 0x46800000 : normal - 960) | (sign >> 24 & 0x80);
}

void chain_f8(const float *restrict G, const float *restrict U, uint8_t *restrict Q, long M, long N, float inverse)
{
#pragma omp parallel for
    for (long i = 0; i < M * N; ++i) Q[i] = e4m3(silu(G[i]) * U[i] * inverse);
}

void chain_f8_bf16(const bf16 *restrict G, const bf16 *restrict U, uint8_t *restrict Q, long M, long N, float inverse)
{
#pragma omp parallel for
    for (long i = 0; i < M * N; ++i) Q[i] = e4m3(silu(load(G[i])) * load(U[i]) * inverse);
}

void int8(const int8_t *restrict A, const int8_t *restrict W, int32_t *restrict Y, long M, long N, long K)
{
#pragma omp parallel for
    for (long i = 0; i < M; ++i) {
        for (long j = 0; j < N; ++j) Y[i * N + j] = 0;
        for (long k = 0; k < K; ++k)
            for (long j = 0; j < N; ++j) Y[i * N + j] += A[i * K + k] * W[k * N + j];
    }
}

void rowquant(const float *restrict A, const int8_t *restrict W, float *restrict Y, long M, long N, long K)
{
#pragma omp parallel
    {
        int8_t *q = calloc(K, 1);
        int32_t *sum = calloc(N, sizeof(int32_t));
#pragma omp for
        for (long i = 0; i < M; ++i) {
            float m = 0;
            for (long k = 0; k < K; ++k) m = fabsf(A[i * K + k]) > m ? fabsf(A[i * K + k]) : m;
            for (long k = 0; k < K; ++k) q[k] = quantized(A[i * K + k] / (m / 127));
            memset(sum, 0, N * sizeof(int32_t));
            for (long k = 0; k < K; ++k)
                for (long j = 0; j < N; ++j) sum[j] += q[k] * W[k * N + j];
            for (long j = 0; j < N; ++j) Y[i * N + j] = sum[j] * (m / 127);
        }
        free(q), free(sum);
    }
}
