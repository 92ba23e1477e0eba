"""Halide with good hand schedules: contractions in halide_gemm.py, chains and row reductions in halide_rows.py."""

from halide_gemm import gemm_bf16, gemm_f32, gemv
from halide_rows import attention, chain, rmsnorm, softmax
from serve import Missing, fastest, serve


def make(row, x, threads):
    kind = row["kind"]
    if row["lanes"] != 16:
        raise Missing("its schedules are written for AVX-512")
    if kind == "gemm_silu" and row["M"] == 1:
        return fastest(lambda nb=nb: gemv(x["A"], x["W"], nb) for nb in (1024, row["N"] // threads))
    if kind == "gemm_silu":
        gemm = gemm_f32 if row["dtype"] == "f32" else gemm_bf16
        return fastest(lambda t=t: gemm(x["A"], x["W"], *t) for t in ((8, 48, 4), (12, 32, 4), (12, 32, 1)))
    if kind in ("chain_i8", "chain_f8"):
        return chain(x["G"], x["U"], row["inverse"], kind == "chain_i8", 8 * threads)
    if kind == "rmsnorm":
        return fastest(lambda rows=rows: rmsnorm(x["X"], x["G"], row["eps"], rows) for rows in (8, 64))
    if kind == "softmax":
        return fastest(lambda rows=rows: softmax(x["X"], rows) for rows in (8, 64))
    if kind == "attention":
        ways = ((30, 6, 64), (32, 8, 32), (48, 12, 32))
        return fastest(lambda w=w: attention(x["Q"], x["K"], x["V"], row["scale"], *w) for w in ways)
    raise Missing("a schedule of this row was not written")


if __name__ == "__main__":
    serve(make)
