"""The kernels of the benchmark as a person writes them, and the permissions that they run under. No schedules."""

from __future__ import annotations

from math import inf
from typing import Any

import tilec
from tilec import bf16, exp, f8e4m3, f32, i8, i32, rsqrt, silu, sizes

M, N, K, D = sizes("M N K D")


@tilec.kernel
def gemm_silu_f32(A: f32[M, K], W: f32[K, N], Y: f32[M, N]):
    C: f32[M, N]
    for i in range(M):
        for j in range(N):
            acc: f32 = 0
            for k in range(K):
                acc += A[i, k] * W[k, j]
            C[i, j] = acc
    for i in range(M):
        for j in range(N):
            Y[i, j] = silu(C[i, j])


@tilec.kernel
def chain_i8_f32(G: f32[M, N], U: f32[M, N], inverse: f32, Q: i8[M, N]):
    for i in range(M):
        for j in range(N):
            Q[i, j] = silu(G[i, j]) * U[i, j] * inverse


@tilec.kernel
def chain_i8_bf16(G: bf16[M, N], U: bf16[M, N], inverse: f32, Q: i8[M, N]):
    for i in range(M):
        for j in range(N):
            Q[i, j] = silu(G[i, j]) * U[i, j] * inverse


@tilec.kernel
def chain_f8_f32(G: f32[M, N], U: f32[M, N], inverse: f32, Q: f8e4m3[M, N]):
    for i in range(M):
        for j in range(N):
            Q[i, j] = silu(G[i, j]) * U[i, j] * inverse


@tilec.kernel
def chain_f8_bf16(G: bf16[M, N], U: bf16[M, N], inverse: f32, Q: f8e4m3[M, N]):
    for i in range(M):
        for j in range(N):
            Q[i, j] = silu(G[i, j]) * U[i, j] * inverse


@tilec.kernel
def gemm_i8(A: i8[M, K], W: i8[K, N], Y: i32[M, N]):
    for i in range(M):
        for j in range(N):
            acc: i32 = 0
            for k in range(K):
                acc += A[i, k] * W[k, j]
            Y[i, j] = acc


@tilec.kernel
def rowquant_i8(A: f32[M, K], W: i8[K, N], Y: f32[M, N]):
    S: f32[M]
    Q: i8[M, K]
    for i in range(M):
        m: f32 = 0
        for k in range(K):
            m = max(m, abs(A[i, k]))
        S[i] = m / 127
    for i in range(M):
        for k in range(K):
            Q[i, k] = A[i, k] / S[i]
    for i in range(M):
        for j in range(N):
            acc: i32 = 0
            for k in range(K):
                acc += Q[i, k] * W[k, j]
            Y[i, j] = f32(acc) * S[i]


@tilec.kernel
def rmsnorm_f32(X: f32[M, K], G: f32[K], eps: f32, Y: f32[M, K]):
    for i in range(M):
        ss: f32 = 0
        for k in range(K):
            ss += X[i, k] * X[i, k]
        r: f32 = rsqrt(ss / K + eps)
        for k in range(K):
            Y[i, k] = X[i, k] * r * G[k]


@tilec.kernel
def softmax_f32(X: f32[M, N], Y: f32[M, N]):
    for i in range(M):
        m: f32 = -inf
        for j in range(N):
            m = max(m, X[i, j])
        e: f32[N]
        total: f32 = 0
        for j in range(N):
            e[j] = exp(X[i, j] - m)
            total += e[j]
        for j in range(N):
            Y[i, j] = e[j] / total


@tilec.kernel
def attention_f32(Q: f32[M, D], K: f32[N, D], V: f32[N, D], scale: f32, Y: f32[M, D]):
    S: f32[M, N]
    E: f32[M, N]
    P: f32[M, N]
    for i in range(M):
        for j in range(N):
            s: f32 = 0
            for d in range(D):
                s += Q[i, d] * K[j, d]
            S[i, j] = s * scale
    for i in range(M):
        m: f32 = -inf
        for j in range(N):
            m = max(m, S[i, j])
        total: f32 = 0
        for j in range(N):
            E[i, j] = exp(S[i, j] - m)
            total += E[i, j]
        for j in range(N):
            P[i, j] = E[i, j] / total
    for i in range(M):
        for d in range(D):
            o: f32 = 0
            for j in range(N):
                o += P[i, j] * V[j, d]
            Y[i, d] = o


KERNELS: dict[str, tuple[tilec.Kernel, dict[str, Any]]] = {
    "gemm_silu_f32": (gemm_silu_f32, {"contract": True}),
    "gemm_silu_bf16": (tilec.workload("gemm_silu"), {"contract": True, "hardware_rounding": True}),
    "chain_i8_f32": (chain_i8_f32, {"contract": True}),
    "chain_i8_bf16": (chain_i8_bf16, {"contract": True}),
    "chain_f8_f32": (chain_f8_f32, {"contract": True}),
    "chain_f8_bf16": (chain_f8_bf16, {"contract": True}),
    "gemm_i8": (gemm_i8, {}),
    "rowquant_i8": (rowquant_i8, {}),
    "rmsnorm_f32": (rmsnorm_f32, {"contract": True, "reassociate": "ss"}),
    "softmax_f32": (softmax_f32, {"contract": True, "reassociate": "total"}),
    "attention_f32": (attention_f32, {"contract": True, "reassociate": "total"}),
}
