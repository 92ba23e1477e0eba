/* Around the micro-kernel of Exo: A packed as a whole by blocks of 8 rows, W by panels of 48 columns, each thread its panels. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "micro.h"

enum { MR = 8, NR = 48 };

void gemm_silu(const float *restrict A, const float *restrict W, float *restrict Y, float *restrict Ap, long M, long N, long K)
{
#pragma omp parallel
    {
        float *Wp = aligned_alloc(64, K * NR * sizeof(float));
#pragma omp for
        for (long u = 0; u < (M + MR - 1) / MR; ++u)
            for (long k = 0; k < K; ++k)
                for (long t = 0; t < MR; ++t) Ap[(u * K + k) * MR + t] = u * MR + t < M ? A[(u * MR + t) * K + k] : 0;
#pragma omp for schedule(dynamic)
        for (long p = 0; p < (N + NR - 1) / NR; ++p) {
            long width = N - p * NR < NR ? N - p * NR : NR;
            if (width < NR) memset(Wp, 0, K * NR * sizeof(float));
            for (long k = 0; k < K; ++k) memcpy(Wp + k * NR, W + k * N + p * NR, width * sizeof(float));
            for (long u = 0; u < (M + MR - 1) / MR; ++u) {
                float C[MR * NR] __attribute__((aligned(64))) = {0};
                micro(NULL, K, Ap + u * K * MR, Wp, C);
                for (long t = 0; t < MR && u * MR + t < M; ++t)
                    for (long j = 0; j < width; ++j)
                        Y[(u * MR + t) * N + p * NR + j] = C[t * NR + j] / (1 + expf(-C[t * NR + j]));
            }
        }
        free(Wp);
    }
}
