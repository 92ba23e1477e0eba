"""Nests of PolyBench in tilec's language, for the table of I/O lower bounds: the sums whose bound the projections give, and
kernels that read a matrix once."""

from __future__ import annotations

import tilec
from tilec import f64, sizes
from tilec.api import Kernel

M, N, L, NI, NJ, NK, NL, NM, NQ, NR, NP = sizes("M N L NI NJ NK NL NM NQ NR NP")


@tilec.kernel
def gemm(A: f64[NI, NK], B: f64[NK, NJ], C: f64[NI, NJ]):
    for i in range(NI):
        for k in range(NK):
            for j in range(NJ):
                C[i, j] += A[i, k] * B[k, j]


@tilec.kernel
def two_products(A: f64[NI, NK], B: f64[NK, NJ], C: f64[NJ, NL], D: f64[NI, NL]):
    tmp: f64[NI, NJ]
    for i in range(NI):
        for j in range(NJ):
            tmp[i, j] = 0
            for k in range(NK):
                tmp[i, j] += A[i, k] * B[k, j]
    for i in range(NI):
        for j in range(NL):
            for k in range(NJ):
                D[i, j] += tmp[i, k] * C[k, j]


@tilec.kernel
def three_products(A: f64[NI, NK], B: f64[NK, NJ], C: f64[NJ, NM], D: f64[NM, NL], G: f64[NI, NL]):
    E: f64[NI, NJ]
    F: f64[NJ, NL]
    for i in range(NI):
        for j in range(NJ):
            E[i, j] = 0
            for k in range(NK):
                E[i, j] += A[i, k] * B[k, j]
    for i in range(NJ):
        for j in range(NL):
            F[i, j] = 0
            for k in range(NM):
                F[i, j] += C[i, k] * D[k, j]
    for i in range(NI):
        for j in range(NL):
            G[i, j] = 0
            for k in range(NJ):
                G[i, j] += E[i, k] * F[k, j]


@tilec.kernel
def doitgen(A: f64[NR, NQ, NP], C4: f64[NP, NP], Y: f64[NR, NQ, NP]):
    for r in range(NR):
        for q in range(NQ):
            for p in range(NP):
                Y[r, q, p] = 0
                for s in range(NP):
                    Y[r, q, p] += A[r, q, s] * C4[s, p]


@tilec.kernel
def syrk(A: f64[N, M], C: f64[N, N]):
    for i in range(N):
        for k in range(M):
            for j in range(i + 1):
                C[i, j] += A[i, k] * A[j, k]


@tilec.kernel
def syr2k(A: f64[N, M], B: f64[N, M], C: f64[N, N]):
    for i in range(N):
        for k in range(M):
            for j in range(i + 1):
                C[i, j] += A[j, k] * B[i, k] + B[j, k] * A[i, k]


@tilec.kernel
def covariance(data: f64[N, M], cov: f64[M, M]):
    for i in range(M):
        for j in range(i, M):
            cov[i, j] = 0
            for k in range(N):
                cov[i, j] += data[k, i] * data[k, j]


@tilec.kernel
def atax(A: f64[M, N], x: f64[N], y: f64[N]):
    t: f64[M]
    for j in range(N):
        y[j] = 0
    for i in range(M):
        t[i] = 0
        for j in range(N):
            t[i] += A[i, j] * x[j]
        for j in range(N):
            y[j] += A[i, j] * t[i]


@tilec.kernel
def bicg(A: f64[N, M], p: f64[M], r: f64[N], q: f64[N], s: f64[M]):
    for j in range(M):
        s[j] = 0
    for i in range(N):
        q[i] = 0
        for j in range(M):
            s[j] += r[i] * A[i, j]
            q[i] += A[i, j] * p[j]


@tilec.kernel
def mvt(A: f64[N, N], x: f64[N], y: f64[N], u: f64[N], v: f64[N]):
    for i in range(N):
        for j in range(N):
            x[i] += A[i, j] * u[j]
    for i in range(N):
        for j in range(N):
            y[i] += A[j, i] * v[j]


@tilec.kernel
def gesummv(A: f64[N, N], B: f64[N, N], x: f64[N], y: f64[N]):
    for i in range(N):
        t: f64 = 0
        u: f64 = 0
        for j in range(N):
            t += A[i, j] * x[j]
            u += B[i, j] * x[j]
        y[i] = t + u


@tilec.kernel
def trisolv(A: f64[N, N], b: f64[N], x: f64[N]):
    for i in range(N):
        x[i] = b[i]
        for j in range(i):
            x[i] += A[i, j] * x[j]


# By the name of the table's row.
KERNELS: dict[str, Kernel] = {
    "gemm": gemm,
    "2mm": two_products,
    "3mm": three_products,
    "doitgen": doitgen,
    "syrk": syrk,
    "syr2k": syr2k,
    "covariance": covariance,
    "atax": atax,
    "bicg": bicg,
    "mvt": mvt,
    "gesummv": gesummv,
    "trisolv": trisolv,
}
