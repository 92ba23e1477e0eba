"""PyTorch on the CPU; with the argument `compiled`, through torch.compile; with `packed`, weights in oneDNN's own order."""

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
    inverse = row["inverse"]
    if row["kind"] == "chain_i8":
        return lambda g, u: F.silu(g.float()).mul_(u).mul_(inverse).round_().clamp_(-128, 127).to(torch.int8)
    return lambda g, u: F.silu(g.float()).mul_(u).mul_(inverse).clamp_(-448, 448).to(torch.float8_e4m3fn)


def rowquant(x, w):
    s = x.abs().amax(dim=1, keepdim=True) / 127
    q = torch.clamp(torch.round(x / s), -128, 127).to(torch.int8)
    return torch._int_mm(q, w) * s


def packed_gemm_silu(a, w):
    """What torch.compile makes of a frozen linear layer: a product with weights reordered ahead."""
    ready = torch.ops.mkldnn._reorder_linear_weight(w.t().contiguous(), a.shape[0])
    return lambda left: F.silu(torch.ops.mkldnn._linear_pointwise(left, ready, None, "none", [], ""))


def make(row, x, threads):
    torch.set_num_threads(threads)
    t = {n: tensor(a) for n, a in x.items()}
    kind = row["kind"]
    if "packed" in sys.argv:
        if kind != "gemm_silu":
            raise Missing("it has no weights")
        f, args = packed_gemm_silu(t["A"], t["W"]), (t["A"],)
    elif kind == "gemm_silu":
        f, args = (lambda a, w: F.silu(a @ w)), (t["A"], t["W"])
    elif kind in ("chain_i8", "chain_f8"):
        f, args = chain(row), (t["G"], t["U"])
    elif kind == "int8":
        f, args = (lambda a, w: torch._int_mm(a, w)), (t["A"], t["W"])
    elif kind == "rowquant":
        f, args = rowquant, (t["A"], t["W"])
    elif kind == "rmsnorm":
        f, args = (lambda v, g: F.rms_norm(v, (v.shape[1],), g, row["eps"])), (t["X"], t["G"])
    elif kind == "softmax":
        f, args = (lambda v: F.softmax(v, dim=1)), (t["X"],)
    elif kind == "attention":
        f = lambda q, k, v: F.scaled_dot_product_attention(q[None, None], k[None, None], v[None, None], scale=row["scale"])[0, 0]  # noqa: E731
        args = (t["Q"], t["K"], t["V"])
    else:
        raise Missing(kind)
    if "compiled" in sys.argv:
        f = torch.compile(f)
    out = {}

    def call():
        with torch.inference_mode():
            out["y"] = f(*args)

    return call, lambda: out["y"].float().numpy()


if __name__ == "__main__":
    serve(make)
