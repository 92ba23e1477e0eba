"""Generated NumPy computes bit for bit what the interpreter computes, whatever the schedule; what may run as one operation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pkgutil import iter_modules
from random import Random

import numpy as np
import pytest

from tests import handbuilt as h
from tests.property.generator import random_program, sizes_of
from tests.property.mutations import mutate
from tilec import workloads
from tilec.codegen import numpy_source, numpy_support
from tilec.codegen.python_text import identifiers
from tilec.errors import InternalError
from tilec.ir import interp
from tilec.ir.affine import Aff, AffLike, Constraint
from tilec.ir.arguments import check_scalars, written
from tilec.ir.dtypes import DTYPES, to_arithmetic
from tilec.ir.expr import Binary, Call, Cast, Compare, Const, Expr, Index, Load, Scalar, Select, Unary
from tilec.ir.functions import FUNCTIONS
from tilec.ir.program import Access, Address, Buffer, Guard, Identity, Leaf, Loop, Merge, Node, Program
from tilec.runtime.call import shape_of
from tilec.runtime.compare import against_reference, random_inputs
from tilec.runtime.numpy_run import runner
from tilec.schedule.schedule import start
from tilec.workloads.gemm_silu import gemm_silu


def same_as_interpreter(program: Program, sizes: dict[str, int], seed: int = 0) -> dict[str, np.ndarray]:
    """Both run `program` itself, also an illegal one; a NaN's sign and payload are not compared."""
    arrays, scalars = random_inputs(program.source, sizes, seed)
    for b in program.source.buffers:
        if b.role == "param":
            arrays.setdefault(b.name, np.zeros(shape_of(b, sizes), DTYPES[b.dtype].numpy))
    want = interp.run(program, arrays, sizes, scalars, vectorize=False)
    got = runner(program)(arrays, {n: sizes[n] for n in program.sizes}, check_scalars(program, scalars))
    for name in written(program):
        x, y = (to_arithmetic(program.buffer[name].dtype, v[name]) for v in (got, want))
        real = ~np.isnan(y) if y.dtype.kind == "f" else np.ones(y.shape, bool)
        assert np.array_equal(x, y, equal_nan=y.dtype.kind == "f"), name
        assert np.array_equal(np.signbit(x[real]), np.signbit(y[real])), name
    return got


def single(value: Expr, op: str = "=", target: str = "f32", reads: tuple[Access, ...] = (), x: str = "f32") -> Program:
    """y[i] op value, for i < N; x and alpha may be used."""
    s = h.statement("S0", {"i": "N"}, h.access("y", "i"), op, value, *reads)
    buffers = (Buffer("x", x, h.affs("N"), "param"), Buffer("y", target, h.affs("N"), "param"))
    return Program("single", ("N",), (), (("alpha", "f32"),), buffers, (s,), (h.loop("i", "N", h.own_leaf(s)),))


X = (h.access("x", "i"),)
F, I = Load(0, "f32"), Index(Aff.of("i") - 3)
HALF, TWO = Const(0.5, "f32"), Const(2, "i32")


@pytest.mark.parametrize("build", [h.gemm_silu, h.gemm_silu_tiled, h.neighbours, h.neighbours_on_threads, h.copied_ahead])
@pytest.mark.parametrize("size", [1, 5, 32, 67])
def test_handbuilt(build: Callable[[], Program], size: int) -> None:
    program = build()
    sizes = dict(zip(program.sizes, (size, size + 2, 41), strict=False))
    assert all(d.identical for d in against_reference(program, sizes, size))


@pytest.mark.parametrize("name", [m.name for m in iter_modules(workloads.__path__)])
def test_library(name: str) -> None:
    original = getattr(import_module(f"{workloads.__name__}.{name}"), name).program
    for program in (original, start(original).program):  # the second has its scalars in registers
        found = against_reference(program, {n: 3 + 2 * i % 5 for i, n in enumerate(program.sizes)}, 1)
        assert found and all(d.identical for d in found), found


@pytest.mark.parametrize("block", range(6))
def test_random_programs(block: int) -> None:
    """Random kernels, rewritten at random, legal or not: only what leaves its buffer is passed over."""
    ran = slices = arrays = 0
    for seed in range(20 * block, 20 * block + 20):
        rng = Random(f"codegen {seed}")
        program, _ = mutate(rng, random_program(rng), rng.randrange(6))
        sizes = sizes_of(program, {"N": 3, "M": 2})
        try:
            same_as_interpreter(program, sizes, seed)
        except InternalError as e:
            assert "leaves" in str(e), e  # a mutated subscript
            continue
        ran += 1
        source = numpy_source.emit(program)
        slices += "0:" in source
        arrays += "axes(" in source or "axis(" in source
    assert ran >= 15 and slices >= 3 and arrays >= 3


@pytest.mark.parametrize("target", ["f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i32", "i8"])
@pytest.mark.parametrize("op", ["=", "+=", "*=", "max=", "min="])
@pytest.mark.parametrize("value", [F, I, Binary("*", F, I, "f32"), HALF, TWO], ids=["load", "index", "mixed", "half", "two"])
def test_stores(target: str, op: str, value: Expr) -> None:
    same_as_interpreter(single(value, op, target, X if value not in (I, HALF, TWO) else ()), {"N": 7})


@pytest.mark.parametrize(
    "value",
    [
        *(Binary(op, F, HALF, "f32") for op in ("+", "-", "*", "/", "max", "min")),
        *(Binary(op, I, TWO, "i32") for op in ("+", "-", "*", "//", "%", "max", "min")),
        Binary("//", TWO, I, "i32"),  # also by zero
        Binary("-", F, Binary("-", F, HALF, "f32"), "f32"),
        Binary("/", Binary("*", F, HALF, "f32"), Binary("+", F, HALF, "f32"), "f32"),
        Unary("-", Binary("+", F, HALF, "f32"), "f32"),
        Unary("abs", F, "f32"),
        Unary("sqrt", F, "f32"),
        Select(Compare("<", F, I), F, Unary("-", I, "i32"), "f32"),
        Select(Unary("not", Compare("==", I, TWO), "bool"), F, HALF, "f32"),
        Select(Binary("or", Compare(">", F, HALF), Compare("<=", I, TWO), "bool"), F, HALF, "f32"),
        Select(Binary("and", Compare(">=", F, HALF), Compare("!=", I, TWO), "bool"), F, HALF, "f32"),
        Cast("bf16", Binary("*", F, HALF, "f32"), "f32"),
        Cast("f8e4m3", Binary("*", F, Const(300.0, "f32"), "f32"), "f32", "toward_zero"),
        Cast("i32", Binary("*", F, Const(3e9, "f32"), "f32"), "i32"),
        Cast("f32", Binary("/", Cast("f64", F, "f64"), Const(3.0, "f64"), "f64"), "f32", "up"),
        Binary("*", Scalar("alpha", "f32"), F, "f32"),
        Const(float("inf"), "f32"),
        Const(float("nan"), "f32"),
        Const(0.1, "f64"),
        Const(-0.0, "f32"),
        *(Call(name, (F,), "f32") for name in FUNCTIONS),
        Call("exp", (I,), "f32"),
    ],
    ids=str,
)
def test_values(value: Expr) -> None:
    same_as_interpreter(single(value, reads=X), {"N": 9}, 3)


def test_register_cells_are_one_per_thread() -> None:
    """t is filled by 8 threads in one phase and read in the next: a single cell would hold the last value."""
    s0 = h.statement("S0", {"i": "N"}, h.access("t", "i"), "=", F, h.access("x", "i"))
    s1 = h.statement("S1", {"i": "N"}, h.access("y", "i"), "=", F, h.access("t", "i"))
    original = Program(
        "registers",
        ("N",),
        (),
        (),
        (Buffer("x", "f32", h.affs("N"), "param"), Buffer("y", "f32", h.affs("N"), "param"), Buffer("t", "f32", h.affs("N"))),
        (s0, s1),
        (h.loop("i", "N", h.own_leaf(s0)), h.loop("i", "N", h.own_leaf(s1))),
    )

    def phase(leaf: Leaf, cell: Address) -> Loop:
        i = Aff.of("io") * 8 + "ii"
        moved = replace(
            leaf,
            instance=h.affs(i),
            target=cell if leaf.target.buffer == "t" else h.address("y", i),
            reads=(cell if leaf.reads[0] == h.address("t", "i") else h.address("x", i),),
        )
        return h.loop("ii", (8, Aff.of("N") - Aff.of("io") * 8), moved, kind="thread.x")

    def program(cells: tuple[Address, Address], *shape: int) -> Program:
        phases = (phase(h.own_leaf(s), cell) for s, cell in zip((s0, s1), cells, strict=True))
        tiles = h.loop("io", (Aff.of("N") + 7) // 8, *phases, kind="block.x")
        t = Buffer("t", "f32", h.affs(*shape), memory="register", owner="io", placed=True)
        return replace(original, buffers=(*original.buffers[:2], t), body=(tiles,), original=original)

    one = h.address("t")
    own = h.address("t", "ii")
    odd = h.address("t", Aff.of("ii") % 2)
    for cells, shape, allocated in (
        ((one, one), (), "undefined((8,)"),
        ((own, own), (8,), "undefined((8,)"),  # the index already tells threads apart
        ((odd, odd), (2,), "undefined((8, 2)"),
    ):
        p = program(cells, *shape)
        assert allocated in numpy_source.emit(p)
        assert all(d.identical for d in against_reference(p, {"N": 21}))
    p = program((own, h.address("t", 7 - Aff.of("ii"))), 8)  # reads cells of its own that it never wrote
    assert "undefined((8, 8)" in numpy_source.emit(p)
    assert np.isnan(same_as_interpreter(p, {"N": 21})["y"]).any()


def test_a_sum_into_one_cell_keeps_its_order() -> None:
    """1 + 2^-24 + 2^-24 + … rounds every term away in order; a pairwise sum would not."""
    s = h.statement("S0", {"i": "N"}, h.access("y", 0), "+=", F, h.access("x", "i"))
    buffers = (Buffer("x", "f32", h.affs("N"), "param"), Buffer("y", "f32", h.affs(1), "param"))
    program = Program("total", ("N",), (), (), buffers, (s,), (h.loop("i", "N", h.own_leaf(s)),))
    assert "add_in_order" in numpy_source.emit(program)
    x = np.full(4096, 2.0**-24, np.float32)
    got = runner(program)({"x": x, "y": np.ones(1, np.float32)}, {"N": 4096}, {})
    assert got["y"][0] == 1.0 != np.float32(1) + x.sum()


def test_a_whole_nest_may_run_as_array_operations() -> None:
    """The scalar accumulator gets one value per (i, j)."""
    source = numpy_source.emit(start(gemm_silu.program).program)
    body = [line.strip() for line in source.splitlines()]
    assert body[body.index('C = undefined((M, N), "bf16")  # global') + 1 : -1] == [
        'acc = undefined((M, N), "f32")  # register',
        "acc[0:M, 0:N] = f32(0)  # S0",
        "for k in range(0, K):",
        "acc[0:M, 0:N] += A[0:M, k, None] * W[k, 0:N]  # S1",
        "C[0:M, 0:N] = bf16(acc[0:M, 0:N])  # S2",
        "Y[0:M, 0:N] = bf16(silu(C[0:M, 0:N]))  # S3",
    ]


@pytest.mark.parametrize(
    ("reads", "loops"),
    [
        (h.address("t", "i"), 0),  # each iteration its own row
        (h.address("t", Aff.of("i") - 1), 1),  # the iteration before wrote it
        (h.address("t", 0), 1),
    ],
)
def test_actions_of_one_loop_run_apart_only_when_rows_are_their_own(reads: Address, loops: int) -> None:
    p = h.neighbours()
    first, second = (h.own_leaf(s) for s in p.statements)
    second = replace(second, reads=(h.address("t", "i"), reads))
    program = replace(p, body=(Loop("i", h.affs(1), h.affs("N"), (first, second)),), original=p)
    assert numpy_source.emit(program).count("for i in") == loops
    same_as_interpreter(program, {"N": 6})


def test_a_recurrence_stays_a_loop() -> None:
    """y[i] = y[i-1] + 1 reads what another iteration writes."""
    s = h.statement("S0", {"i": "N"}, h.access("y", Aff.of("i") + 1), "+=", F, h.access("y", "i"))
    program = Program(
        "scan", ("N",), (), (), (Buffer("y", "f32", h.affs(Aff.of("N") + 1), "param"),), (s,), (h.loop("i", "N", h.own_leaf(s)),)
    )
    assert "for i in range" in numpy_source.emit(program)
    got = runner(program)({"y": np.ones(6, np.float32)}, {"N": 5}, {})
    assert got["y"].tolist() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("apart", [False, True], ids=["perfect nest", "two actions"])
def test_overlapping_rows_keep_the_order_of_updates(apart: bool) -> None:
    """a[v + k/2] = x[v]: v must not move inside k, or another v is the last writer."""
    v, k = Aff.of("v"), Aff.of("k")
    s = h.statement("S0", {"v": "N", "k": 6}, h.access("a", v + k // 2), "=", F, h.access("x", "v"))
    copy = h.statement("S1", {"v": "N"}, h.access("y", "v"), "=", F, h.access("x", "v"))
    buffers = tuple(Buffer(n, "f32", h.affs(e), "param") for n, e in (("x", "N"), ("y", "N"), ("a", Aff.of("N") + 2)))
    inner: tuple[Node, ...] = (h.loop("k", 6, h.own_leaf(s)),)
    inner = (h.own_leaf(copy), *inner) if apart else inner
    program = Program("overlap", ("N",), (), (), buffers, (s, copy), (h.loop("v", "N", *inner),))
    arrays = {"x": np.arange(4, dtype=np.float32), "y": np.zeros(4, np.float32), "a": np.zeros(6, np.float32)}
    got = runner(program)(arrays, {"N": 4}, {})
    assert got["a"].tolist() == [0, 1, 2, 3, 3, 3]


@pytest.mark.parametrize("kind", ["serial", "parallel", "vector", "thread.x", "unrolled"])
def test_guards_become_bounds_or_stay(kind: str) -> None:
    """A partial tile, a stride and a parity: the first two narrow the range, the last stays a condition."""
    p = h.neighbours()
    i = Aff.of("i")
    leaf = h.own_leaf(p.statements[0])
    for conditions in (
        (Constraint.lt(i, "N"), Constraint.ge(i * 2, 5)),
        (Constraint.ge(Aff.of("N"), i * 3),),
        (Constraint.eq(i % 2, 1),),
        (Constraint.eq(i, 2),),
        (Constraint.ge("N", 4),),
    ):
        loop = Loop("i", h.affs(0), h.affs(Aff.of("N")), (Guard(conditions, (leaf,)),), kind)
        program = replace(p, body=(loop, p.body[1]), original=p)
        for n in (3, 9):
            same_as_interpreter(program, {"N": n})


def test_a_perfect_nest_deeper_than_python_s() -> None:
    extents: dict[str, AffLike] = {f"v{n}": 2 if n > 21 else 1 for n in range(25)}
    s = h.statement("S0", extents, h.access("y", 0), "=", Binary("+", Binary("*", F, HALF, "f32"), HALF, "f32"), h.access("y", 0))
    body: Node = h.own_leaf(s)
    for v in reversed(extents):
        body = h.loop(v, extents[v], body)
    program = Program("deep", (), (), (), (Buffer("y", "f32", h.affs(1), "param"),), (s,), (body,))
    assert runner(program)({"y": np.zeros(1, np.float32)}, {}, {})["y"].tolist() == [1 - 2.0**-8]


def test_more_loops_than_python_nests() -> None:
    """24 loops that cannot run together, around a scalar from outside and an array."""
    p = h.neighbours()
    t = replace(p.buffer["t"], shape=(), memory="register", owner="v0", placed=True)
    first, second = (h.own_leaf(s) for s in p.statements)
    zero = h.affs(0)
    first = replace(first, instance=zero, target=h.address("t"), reads=(h.address("x", 0),))
    second = replace(second, instance=zero, target=h.address("y", 0), reads=(h.address("t"), h.address("y", 0)))
    again = replace(first, reads=(h.address("y", 0),))
    body: tuple[Node, ...] = (second, again)
    for n in reversed(range(1, 24)):
        body = (h.loop(f"v{n}", 2 if n > 20 else 1, *body),)
    s1 = replace(p.statements[1], reads=(h.access("t", 0), h.access("y", 0)), target=h.access("y", 0))
    program = replace(
        p, statements=(p.statements[0], s1), buffers=(*p.buffers[:2], t), body=(h.loop("v0", 1, first, *body),), original=p
    )
    assert "def deeper():" in numpy_source.emit(program)
    arrays = {"x": np.ones(1, np.float32), "y": np.zeros(1, np.float32)}
    want = interp.run(program, arrays, {"N": 1}, vectorize=False)["y"]
    assert runner(program)(arrays, {"N": 1}, {})["y"].tolist() == want.tolist() != [0]


def test_partial_sums_with_identity_and_merge() -> None:
    s = h.statement("S0", {"i": "N", "k": "K"}, h.access("y", "i"), "+=", F, h.access("x", "i", "k"))
    buffers = (Buffer("x", "bf16", h.affs("N", "K"), "param"), Buffer("y", "bf16", h.affs("N"), "param"))
    original = Program("parts", ("N", "K"), (), (), buffers, (s,), (h.loop("i", "N", h.loop("k", "K", h.own_leaf(s))),))
    part, k = Buffer("part", "bf16", h.affs(4), "partial", "register", "i", root="y"), Aff.of("k")
    leaf = replace(h.own_leaf(s), target=h.address("part", k % 4))
    body = (
        h.loop("w", 4, Identity(h.address("part", "w"), "+=", h.affs("i"))),
        h.loop("k", "K", leaf),
        h.loop("w", 4, Merge(h.address("y", "i"), h.address("part", "w"), "+=", h.affs("i"), h.affs("i"))),
    )
    program = replace(
        original, buffers=(*buffers, part), body=(h.loop("i", "N", *body),), reassociate=frozenset({"y"}), original=original
    )
    same_as_interpreter(program, {"N": 3, "K": 11})


def test_arguments_are_not_changed_by_a_run() -> None:
    program = single(F, "+=", reads=X)
    y = np.ones(4, np.float32)
    got = runner(program)({"x": np.ones(4, np.float32), "y": y}, {"N": 4}, {"alpha": np.float32(1)})
    assert got["y"].tolist() == [2, 2, 2, 2] and y.tolist() == [1, 1, 1, 1]


def test_names_of_the_kernel_never_hide_those_of_the_code() -> None:
    s = h.statement("S0", {"range": "np"}, h.access("f32", "range"), "=", Call("silu", (F,), "f32"), h.access("values", "range"))
    buffers = (Buffer("values", "bf16", h.affs("np"), "param"), Buffer("f32", "bf16", h.affs("np"), "param"))
    program = Program("silu", ("np",), (), (), buffers, (s,), (h.loop("range", "np", h.own_leaf(s)),))
    same_as_interpreter(program, {"np": 5})


def test_identifiers_are_distinct() -> None:
    got = identifiers(["a.0", "a_0", "lambda", "A_shared.0_o", "min"], {"a_0_"})
    assert len(set(got.values())) == 5 and all(name.isidentifier() for name in got.values())
    assert got["lambda"] != "lambda" and got["min"] != "min" and "a_0_" not in got.values()


def test_support_has_no_other_functions() -> None:
    with pytest.raises(AttributeError):
        numpy_support.__getattr__("expm1")
