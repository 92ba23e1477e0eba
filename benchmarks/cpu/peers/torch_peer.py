"""PyTorch on the CPU; with the argument `compiled`, through torch.compile."""

import sys

import numpy as np
import torch
import torch.nn.functional as F
from serve import Missing, serve


def tensor(a):
    if a.dtype == np.uint16:
        return torch.from_numpy(a.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(a)


def chain(row):
    scale = row["scale"]

    def silu_mul(g, u):
        return F.silu(g) * u / scale

    if row["kind"] == "chain_i8":
        return lambda g, u: torch.clamp(torch.round(silu_mul(g, u)), -128, 127).to(torch.int8)
    return lambda g, u: torch.clamp(silu_mul(g, u), -448, 448).to(torch.float8_e4m3fn)


def int8(a, w, sa):
    return torch._int_mm(a, w) * sa


def rowquant(x, w):
    s = x.abs().amax(dim=1, keepdim=True) / 127
    q = torch.clamp(torch.round(x / s), -128, 127).to(torch.int8)
    return torch._int_mm(q, w) * s


def make(row, x, threads):
    torch.set_num_threads(threads)
    t = {n: tensor(a) for n, a in x.items()}
    kind = row["kind"]
    if kind == "gemm_silu":
        f, args = (lambda a, w: F.silu(a @ w)), (t["A"], t["W"])
    elif kind in ("chain_i8", "chain_f8"):
        f, args = chain(row), (t["G"], t["U"])
    elif kind == "int8":
        f, args = (lambda a, w: torch._int_mm(a, w)), (t["A"], t["W"])
    elif kind == "rowquant":
        f, args = rowquant, (t["A"], t["W"])
    elif kind == "rmsnorm":
        f, args = (lambda v, g: F.rms_norm(v, (v.shape[1],), g, 1e-5)), (t["X"], t["G"])
    elif kind == "softmax":
        f, args = (lambda v: F.softmax(v, dim=1)), (t["X"],)
    elif kind == "attention":
        scale = row["scale"]
        f = lambda q, k, v: F.scaled_dot_product_attention(q[None, None], k[None, None], v[None, None], scale=scale)[0, 0]  # noqa: E731
        args = (t["Q"], t["K"], t["V"])
    else:
        raise Missing(kind)
    if "compiled" in sys.argv:
        f = torch.compile(f)
    out = {}

    def call():
        with torch.no_grad():
            out["y"] = f(*args)

    return call, lambda: out["y"].float().numpy()


if __name__ == "__main__":
    serve(make)
