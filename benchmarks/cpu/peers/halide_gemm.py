"""Halide's contractions: the right operand packed by panels inside the call, a micro-tile in registers, parallel over panels."""

import halide as hl  # reads HL_NUM_THREADS once
import numpy as np
from serve import bf16_to_f32

GUARD = hl.TailStrategy.GuardWithIf
LANES = 16


def named(kind, names):
    """One Var or Func for each name."""
    return [kind(name) for name in names.split()]


def silu(c):
    return c / (1.0 + hl.exp(-c))


def rounded(e):
    """The 16 bits of the bf16 nearest to an f32, ties to even."""
    bits = hl.reinterpret(hl.UInt(32), e)
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


def bf16(bits):
    return hl.cast(hl.Float(32), hl.reinterpret(hl.BFloat(16), bits))


def compiled(out, shape, dtype):
    out.compile_jit(hl.get_jit_target_from_environment())
    y = np.zeros(shape, dtype)
    buffer = hl.Buffer(y)
    return (lambda: out.realize(buffer)), lambda: bf16_to_f32(y) if dtype == np.uint16 else y


def gemm_f32(a, w, mr, nr, unroll):
    (m, k), n = a.shape, w.shape[1]
    left, right = hl.Buffer(a), hl.Buffer(w)
    j, i, jo, ji, io, ii, kk, p, q, t, u = named(hl.Var, "j i jo ji io ii kk p q t u")
    r = hl.RDom([(0, k)])
    panels, prod, out = hl.Func("panels"), hl.Func("prod"), hl.Func("out")
    panels[q, kk, p] = right[hl.min(p * nr + q, n - 1), kk]
    prod[q, t, p, u] = 0.0
    prod[q, t, p, u] += left[r.x, hl.min(u * mr + t, m - 1)] * panels[q, r.x, p]
    out[j, i] = silu(prod[j % nr, i % mr, j // nr, i // mr])
    out.bound(j, 0, n).bound(i, 0, m).tile(j, i, jo, io, ji, ii, nr, mr, GUARD).reorder(ji, ii, io, jo)
    out.vectorize(ji, LANES, GUARD).parallel(jo)
    prod.compute_at(out, io).bound_extent(q, nr).bound_extent(t, mr).vectorize(q, LANES).unroll(q).unroll(t)
    prod.update().reorder(q, t, r.x).vectorize(q, LANES).unroll(q).unroll(t).unroll(r.x, unroll)
    panels.compute_at(out, jo).bound_extent(q, nr).vectorize(q, LANES).unroll(q)
    return compiled(out, (m, n), np.float32)


def gemm_bf16(a, w, mr, nr, unroll):
    """vdpbf16ps: panels hold pairs of rows side by side; an odd last row is paired with zeros."""
    (m, k), n = a.shape, w.shape[1]
    left, right = hl.Buffer(a), hl.Buffer(w)
    j, i, jo, ji, io, ii, kl, kk, p, q, t, u = named(hl.Var, "j i jo ji io ii kl kk p q t u")
    r = hl.RDom([(0, 2), (0, (k + 1) // 2)])
    panels, prod, out = hl.Func("panels"), hl.Func("prod"), hl.Func("out")
    row = 2 * kk + kl
    value = right[hl.min(p * nr + q, n - 1), row if k % 2 == 0 else hl.min(row, k - 1)]
    panels[kl, q, kk, p] = value if k % 2 == 0 else hl.select(row < k, value, hl.u16(0))
    depth = 2 * r.y + r.x
    other = left[depth if k % 2 == 0 else hl.min(depth, k - 1), hl.min(u * mr + t, m - 1)]
    prod[q, t, p, u] = 0.0
    prod[q, t, p, u] += bf16(other) * bf16(panels[r.x, q, r.y, p])
    c = hl.reinterpret(hl.Float(32), rounded(prod[j % nr, i % mr, j // nr, i // mr]) << 16)
    out[j, i] = hl.cast(hl.UInt(16), rounded(silu(c)))
    out.bound(j, 0, n).bound(i, 0, m).tile(j, i, jo, io, ji, ii, nr, mr, GUARD).reorder(ji, ii, io, jo)
    out.vectorize(ji, LANES, GUARD).parallel(jo)
    prod.compute_at(out, io).bound_extent(q, nr).bound_extent(t, mr).vectorize(q, LANES).unroll(q).unroll(t)
    update = prod.update().reorder(r.x, q, t, r.y).atomic().vectorize(r.x).vectorize(q, LANES)
    update.unroll(q).unroll(t).unroll(r.y, unroll)
    panels.compute_at(out, jo).bound_extent(q, nr).bound_extent(kl, 2).reorder(kl, q, kk, p)
    panels.vectorize(kl).vectorize(q, LANES).unroll(q)
    return compiled(out, (m, n), a.dtype.type)


def gemv(a, w, nb):
    """One row: eight rows of W at a time are added to a block of nb columns."""
    k, n = w.shape
    left, right = hl.Buffer(a), hl.Buffer(w)
    j, i, jo, ji = named(hl.Var, "j i jo ji")
    r, ro, ri = hl.RDom([(0, k)]), hl.RVar("ro"), hl.RVar("ri")
    narrow = a.dtype == np.uint16
    prod, out = hl.Func("prod"), hl.Func("out")
    x, y = left[r.x, 0], right[j, r.x]
    prod[j] = 0.0
    prod[j] += bits_to_f32(x) * bits_to_f32(y) if narrow else x * y
    if narrow:
        c = hl.reinterpret(hl.Float(32), rounded(prod[j]) << 16)
        out[j, i] = hl.cast(hl.UInt(16), rounded(silu(c)))
    else:
        out[j, i] = silu(prod[j])
    out.bound(i, 0, 1).bound(j, 0, n).split(j, jo, ji, nb, GUARD).vectorize(ji, LANES).reorder(ji, i, jo).parallel(jo)
    prod.compute_at(out, jo).vectorize(j, LANES)
    prod.update().split(r.x, ro, ri, 8).reorder(ri, j, ro).vectorize(j, LANES).unroll(ri)
    return compiled(out, (1, n), a.dtype.type)


def bits_to_f32(bits):
    return hl.reinterpret(hl.Float(32), hl.cast(hl.UInt(32), bits) << 16)
