"""NumPy with the BLAS that it ships."""

import numpy as np
from serve import Missing, serve


def make(row, x, threads):
    kind = row["kind"]
    if row["dtype"] != "f32" or kind in ("chain_i8", "chain_f8", "int8", "rowquant"):
        raise Missing(f"NumPy has no {row['dtype']} of its own")
    if kind == "gemm_silu":
        y = np.empty((row["M"], row["N"]), np.float32)
        t = np.empty_like(y)

        def call():
            np.matmul(x["A"], x["W"], out=y)
            np.negative(y, out=t)
            np.exp(t, out=t)
            np.add(t, 1, out=t)
            np.divide(y, t, out=y)

        return call, lambda: y
    if kind == "rmsnorm":
        out = {}

        def call():
            out["y"] = x["X"] * (1 / np.sqrt(np.mean(x["X"] * x["X"], axis=1, keepdims=True) + np.float32(1e-5))) * x["G"]

        return call, lambda: out["y"]
    if kind == "softmax":
        out = {}

        def call():
            e = np.exp(x["X"] - x["X"].max(axis=1, keepdims=True))
            e /= e.sum(axis=1, keepdims=True)
            out["y"] = e

        return call, lambda: out["y"]
    if kind == "attention":
        out = {}
        scale = np.float32(row["scale"])

        def call():
            s = x["Q"] @ x["K"].T * scale
            e = np.exp(s - s.max(axis=1, keepdims=True))
            e /= e.sum(axis=1, keepdims=True)
            out["y"] = e @ x["V"]

        return call, lambda: out["y"]
    raise Missing(kind)


if __name__ == "__main__":
    serve(make)
