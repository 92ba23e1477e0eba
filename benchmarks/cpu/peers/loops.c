/* The plain loops that a person writes first, for gcc -O3 -march=native -ffast-math -fopenmp. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

void gemm_silu(const float *restrict A, const float *restrict W, float *restrict Y, long M, long N, long K)
{
#pragma omp parallel for
    for (long i = 0; i < M; ++i) {
        for (long j = 0; j < N; ++j) Y[i * N + j] = 0;
        for (long k = 0; k < K; ++k)
            for (long j = 0; j < N; ++j) Y[i * N + j] += A[i * K + k] * W[k * N + j];
        for (long j = 0; j < N; ++j) Y[i * N + j] = Y[i * N + j] / (1 + expf(-Y[i * N + j]));
    }
}

void rmsnorm(const float *restrict X, const float *restrict G, float *restrict Y, long M, long K)
{
#pragma omp parallel for
    for (long i = 0; i < M; ++i) {
        float s = 0;
        for (long k = 0; k < K; ++k) s += X[i * K + k] * X[i * K + k];
        float r = 1 / sqrtf(s / K + 1e-5f);
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

void chain_i8(const float *restrict G, const float *restrict U, int8_t *restrict Q, float scale, long n)
{
#pragma omp parallel for
    for (long i = 0; i < n; ++i) {
        float v = rintf(G[i] / (1 + expf(-G[i])) * U[i] / scale);
        Q[i] = (int8_t)(v < -128 ? -128 : v > 127 ? 127 : v);
    }
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
