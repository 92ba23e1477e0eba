"""NumPy with the BLAS that it ships. bf16 and E4M3, which it has not, are left out."""

import numpy as np
from serve import Missing, serve


def silu(c, t):
    """In place; t: as large, for the parts."""
    np.negative(c, out=t)
    np.exp(t, out=t)
    np.add(t, 1, out=t)
    np.divide(c, t, out=c)


def softmax(s):
    """Of each row, in place."""
    s -= s.max(axis=1, keepdims=True)
    np.exp(s, out=s)
    s /= s.sum(axis=1, keepdims=True)
    return s


def make(row, x, threads):
    kind, out = row["kind"], {}
    if row["dtype"] == "bf16" or kind == "chain_f8":
        raise Missing(f"NumPy has no {'E4M3' if row['dtype'] == 'f32' else 'bf16'} of its own")
    if kind == "gemm_silu":
        y = np.empty((row["M"], row["N"]), np.float32)
        t = np.empty_like(y)

        def call():
            np.matmul(x["A"], x["W"], out=y)
            with np.errstate(over="ignore"):  # exp of a large number is infinite, as meant
                silu(y, t)

        return call, lambda: y
    if kind == "chain_i8":
        v = np.empty_like(x["G"])
        t, q = np.empty_like(v), np.empty(v.shape, np.int8)

        def call():
            np.copyto(v, x["G"])
            silu(v, t)
            np.multiply(v, x["U"], out=v)
            np.multiply(v, np.float32(row["inverse"]), out=v)
            np.rint(v, out=v)
            np.clip(v, -128, 127, out=v)
            np.copyto(q, v, casting="unsafe")

        return call, lambda: q
    calls = {
        # NumPy's product of integers uses no BLAS: products of floats are exact below 2^24 only, those of doubles here
        "int8": lambda: np.matmul(x["A"].astype(np.float64), x["W"].astype(np.float64)).astype(np.int32),
        "rowquant": lambda: _rowquant(x["A"], x["W"]),
        "rmsnorm": lambda: x["X"] * (1 / np.sqrt(np.mean(x["X"] * x["X"], axis=1, keepdims=True) + np.float32(1e-5))) * x["G"],
        "softmax": lambda: softmax(x["X"].copy()),
        "attention": lambda: softmax(x["Q"] @ x["K"].T * np.float32(row["scale"])) @ x["V"],
    }
    return (lambda: out.update(y=calls[kind]())), lambda: out["y"]


def _rowquant(a, w):
    s = np.abs(a).max(axis=1, keepdims=True) / np.float32(127)
    return np.rint(a / s).astype(np.float64) @ w.astype(np.float64) * s


if __name__ == "__main__":
    serve(make)
