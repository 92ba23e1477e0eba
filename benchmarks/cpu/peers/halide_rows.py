"""Halide's chains and row reductions. Its exp is a polynomial as accurate as tilec's (2 ulp), not fast_exp."""

import halide as hl
import numpy as np
from halide_gemm import bits_to_f32, compiled, named
from serve import e4m3_values

WIDE = 64  # elements of a vectorised loop: four registers


def chain(g, u, inverse, to_i8, tasks):
    """silu(G)*U*inverse to i8, or to the bits of E4M3."""
    gate, up = hl.Buffer(g.reshape(-1)), hl.Buffer(u.reshape(-1))
    j, jo, ji, out = hl.Var("j"), hl.Var("jo"), hl.Var("ji"), hl.Func("out")
    x, y = (b[j] if g.dtype == np.float32 else bits_to_f32(b[j]) for b in (gate, up))
    v = x / (1.0 + hl.exp(-x)) * y * hl.f32(inverse)
    out[j] = hl.cast(hl.Int(8), hl.clamp(hl.round(v), -128.0, 127.0)) if to_i8 else e4m3(v)
    out.bound(j, 0, g.size).split(j, jo, ji, g.size // tasks, hl.TailStrategy.GuardWithIf).parallel(jo).vectorize(ji, WIDE)
    call, output = compiled(out, g.size, np.int8 if to_i8 else np.uint8)
    return call, lambda: (output() if to_i8 else e4m3_values()[output()]).reshape(g.shape)


def e4m3(v):
    """Nearest even of the clamped value: normal numbers by their bits, subnormal ones by adding a power of two."""
    a = hl.min(hl.abs(v), 448.0)
    bits = hl.reinterpret(hl.UInt(32), a)
    normal = ((bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20) - (120 << 3)
    subnormal = hl.reinterpret(hl.UInt(32), a + 16384.0) - 0x46800000
    sign = (hl.reinterpret(hl.UInt(32), v) >> 24) & 0x80
    return hl.cast(hl.UInt(8), hl.select(a < 2.0**-6, subnormal, normal) | sign)


def _partial(f, v, r, at):
    """A reduction to WIDE lanes, in registers."""
    f.compute_at(*at).bound_extent(v, WIDE).vectorize(v)
    f.update().reorder(v, r.x).vectorize(v)


def rmsnorm(x, g, eps, rows):
    (m, k), data, gain = x.shape, hl.Buffer(x), hl.Buffer(g)
    j, i, v, io = named(hl.Var, "j i v io")
    r, lanes = hl.RDom([(0, k // WIDE)]), hl.RDom([(0, WIDE)])
    part, scale, out = hl.Func("part"), hl.Func("scale"), hl.Func("out")
    part[v, i] = 0.0
    part[v, i] += data[r.x * WIDE + v, i] * data[r.x * WIDE + v, i]
    scale[i] = 1.0 / hl.sqrt(hl.sum(lanes, part[lanes.x, i]) / hl.f32(k) + hl.f32(eps))
    out[j, i] = data[j, i] * scale[i] * gain[j]
    out.bound(j, 0, k).bound(i, 0, m).vectorize(j, WIDE).split(i, io, i, rows).parallel(io)
    scale.compute_at(out, i)
    _partial(part, v, r, (out, i))
    return compiled(out, (m, k), np.float32)


def softmax(x, rows):
    (m, n), data = x.shape, hl.Buffer(x)
    j, i, v, io = named(hl.Var, "j i v io")
    r, lanes = hl.RDom([(0, n // WIDE)]), hl.RDom([(0, WIDE)])
    top, most, e, part, scale, out = named(hl.Func, "top most e part scale out")
    top[v, i] = data[v, i]
    top[v, i] = hl.max(top[v, i], data[r.x * WIDE + v, i])
    most[i] = hl.maximum(lanes, top[lanes.x, i])
    e[j, i] = hl.exp(data[j, i] - most[i])
    part[v, i] = 0.0
    part[v, i] += e[r.x * WIDE + v, i]
    scale[i] = 1.0 / hl.sum(lanes, part[lanes.x, i])
    out[j, i] = e[j, i] * scale[i]
    out.bound(j, 0, n).bound(i, 0, m).vectorize(j, WIDE).split(i, io, i, rows).parallel(io)
    for f in (most, scale):
        f.compute_at(out, i)
    for f in (top, part):
        _partial(f, v, r, (out, i))
    e.compute_at(out, i).vectorize(j, WIDE)
    return compiled(out, (m, n), np.float32)


def attention(q, k, v, scale, block, mr, nr):
    """A block of query rows keeps its scores in L2; both products by micro-tiles, K and V packed by panels once."""
    (m, d), n = q.shape, len(k)
    query, key, value = hl.Buffer(q), hl.Buffer(k), hl.Buffer(v)
    i, j, c, io, ib, ii, jo, ji, co, ci, x, p = named(hl.Var, "i j c io ib ii jo ji co ci x p")
    rd, rj = hl.RDom([(0, d)]), hl.RDom([(0, n)])
    r, lanes = hl.RDom([(0, n // WIDE)]), hl.RDom([(0, WIDE)])
    keys, values, dot, score, top, most = named(hl.Func, "keys values dot score top most")
    e, part, inverse, product, out = named(hl.Func, "e part inverse product out")
    keys[x, c, p] = key[c, p * nr + x]
    values[x, j, p] = value[p * nr + x, j]
    dot[j, i] = 0.0
    dot[j, i] += query[rd.x, i] * keys[j % nr, rd.x, j // nr]
    score[j, i] = dot[j, i] * hl.f32(scale)
    top[x, i] = score[x, i]
    top[x, i] = hl.max(top[x, i], score[r.x * WIDE + x, i])
    most[i] = hl.maximum(lanes, top[lanes.x, i])
    e[j, i] = hl.exp(score[j, i] - most[i])
    part[x, i] = 0.0
    part[x, i] += e[r.x * WIDE + x, i]
    inverse[i] = 1.0 / hl.sum(lanes, part[lanes.x, i])
    product[c, i] = 0.0
    product[c, i] += e[rj.x, i] * values[c % nr, rj.x, c // nr]
    out[c, i] = product[c, i] * inverse[i]

    shift = hl.TailStrategy.ShiftInwards
    out.bound(c, 0, d).bound(i, 0, m).split(i, io, ii, block, shift).tile(c, ii, co, ib, ci, i, nr, mr, shift)
    out.reorder(ci, i, ib, co, io).vectorize(ci, 16).unroll(ci).unroll(i).parallel(io)
    score.compute_at(out, io).tile(j, i, jo, ib, ji, ii, nr, mr, shift).reorder(ji, ii, ib, jo)
    score.vectorize(ji, 16).unroll(ji).unroll(ii)
    for f, column, depth, at in ((product, c, rj, (out, ib)), (dot, j, rd, (score, ib))):
        f.compute_at(*at).vectorize(column, 16).unroll(column).unroll(i)
        f.update().reorder(column, i, depth.x).vectorize(column, 16).unroll(column).unroll(i).unroll(depth.x, 4)
    for f in (top, part):
        _partial(f, x, r, (out, io))
    for f in (most, inverse):
        f.compute_at(out, io)
    e.compute_at(out, io).vectorize(j, WIDE)
    keys.compute_root().bound_extent(x, nr).reorder(x, c, p).unroll(x).parallel(p)
    values.compute_root().bound_extent(x, nr).vectorize(x, 16).parallel(p)
    return compiled(out, (m, d), np.float32)
