"""Each rule of the tree is broken once: `verify` names it. The untouched programs pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests import handbuilt as h
from tilec.errors import InternalError
from tilec.ir import tree
from tilec.ir.affine import Aff, Constraint
from tilec.ir.expr import Const, Index, Load, Scalar
from tilec.ir.program import Barrier, Copy, Guard, Identity, Inline, Leaf, Loop, Merge, Node, Prefetch, Program, Wait
from tilec.ir.verify import RULES, verify

PROGRAMS = (h.gemm_silu, h.gemm_silu_tiled, h.neighbours, h.neighbours_on_threads, h.copied_ahead)


@pytest.mark.parametrize("build", PROGRAMS)
def test_well_formed(build: Callable[[], Program]) -> None:
    verify(build())


def rewritten(p: Program, f: Callable[[Node], Node]) -> Program:
    """Every node through f, bottom-up."""
    return replace(p, body=tree.transform(p.body, lambda node: (f(node),)))


def loop_with(var: str, **changes: object) -> Callable[[Node], Node]:
    return lambda node: replace(node, **changes) if isinstance(node, Loop) and node.var == var else node


def leaf_with(name: str, change: Callable[[Leaf], Leaf]) -> Callable[[Node], Node]:
    return lambda node: change(node) if isinstance(node, Leaf) and node.statement == name else node


def copy_with(change: Callable[[Copy], Copy]) -> Callable[[Node], Node]:
    return lambda node: change(node) if isinstance(node, Copy) else node


def buffer_with(p: Program, name: str, **changes: object) -> Program:
    return replace(p, buffers=tuple(replace(b, **changes) if b.name == name else b for b in p.buffers))  # type: ignore[arg-type]


def statement_with(p: Program, name: str, **changes: object) -> Program:
    return replace(p, statements=tuple(replace(s, **changes) if s.name == name else s for s in p.statements))  # type: ignore[arg-type]


def inside(p: Program, var: str, *nodes: Node) -> Program:
    """`nodes` at the start of the loop `var`."""
    return rewritten(p, lambda n: replace(n, body=(*nodes, *n.body)) if isinstance(n, Loop) and n.var == var else n)


G, T, P, A = h.gemm_silu(), h.gemm_silu_tiled(), h.neighbours_on_threads(), h.copied_ahead()

BROKEN: list[tuple[str, str, Program]] = [
    ("names", "scalar named as a size", replace(G, scalars=(("K", "f32"),))),
    (
        "names",
        "loop named as a buffer",
        rewritten(T, lambda n: replace(n, var="A") if isinstance(n, Loop) and n.var == "ki" else n),
    ),
    ("declaration", "buffer declared twice", replace(T, buffers=(*T.buffers, T.buffers[-1]))),
    ("declaration", "unknown memory", buffer_with(T, "acc", memory="local")),
    ("declaration", "unknown dtype", buffer_with(T, "acc", dtype="f128")),
    ("declaration", "shape uses a loop", buffer_with(T, "acc", shape=h.affs("io", 64))),
    ("parameter", "parameter in shared", buffer_with(T, "A", memory="shared")),
    ("parameter", "parameter of another dtype", buffer_with(T, "A", dtype="f32")),
    ("parameter", "parameter missing", replace(A, buffers=A.buffers[1:])),
    ("temporary", "temporary of another dtype", buffer_with(T, "acc", dtype="bf16")),
    ("temporary", "cache without root", buffer_with(T, "A_shared", root=None)),
    ("statement", "domain outside the loops", statement_with(G, "S0", domain=(Constraint.ge("k", 0),))),
    ("statement", "access outside the loops", statement_with(G, "S0", target=h.access("acc", "i", "q"))),
    ("statement", "access of the wrong rank", statement_with(G, "S0", target=h.access("acc", "i"))),
    ("statement", "load without a read", statement_with(G, "S3", value=Load(1, "f32"))),
    ("statement", "unknown index", statement_with(G, "S0", value=Index(Aff.of("q")))),
    ("statement", "unknown scalar", statement_with(G, "S0", value=Scalar("q", "f32"))),
    ("statement", "unknown operation", statement_with(G, "S0", op="-=")),
    ("original", "statement changed", statement_with(T, "S0", value=Const(1, "i32"))),
    ("original", "assumption added", replace(T, where=(Constraint.ge("K", 2),))),
    ("original", "original of an original", replace(T, original=replace(G, original=G))),
    ("own instance", "shifted instance", rewritten(G, leaf_with("S3", lambda x: replace(x, instance=h.affs("j", "i"))))),
    ("own instance", "other target", rewritten(G, leaf_with("S3", lambda x: replace(x, target=h.address("Y", "j", "i"))))),
    ("empty", "loop without upper bound", rewritten(T, loop_with("ki", upper=()))),
    ("empty", "guard without condition", inside(T, "ko", Guard((), (Barrier(),)))),
    ("empty", "loop without body", inside(T, "ko", h.loop("q", 2))),
    (
        "variable",
        "loop under itself",
        rewritten(T, lambda n: h.loop("ii", 64, n) if isinstance(n, Leaf) and n.statement == "S1" else n),
    ),
    ("scope", "bound uses an inner loop", rewritten(T, loop_with("ko", upper=h.affs("ki")))),
    ("scope", "assumption uses a loop", replace(G, where=(Constraint.ge("i", 0),))),
    ("scope", "guard out of scope", rewritten(T, lambda n: Guard((Constraint.ge("ki", 1),), (n,)) if isinstance(n, Copy) else n)),
    ("scope", "address out of scope", rewritten(T, leaf_with("S1", lambda x: replace(x, target=h.address("acc", "ii", "q"))))),
    ("scope", "instance out of scope", rewritten(T, leaf_with("S1", lambda x: replace(x, instance=h.affs("q", "ji", "ki"))))),
    ("scope", "cell out of scope", rewritten(T, copy_with(lambda x: replace(x, cell=h.affs("ki", "ki"))))),
    ("kind", "unknown kind", rewritten(T, loop_with("ki", kind="warp"))),
    ("axis", "thread.x in thread.x", rewritten(rewritten(T, loop_with("ji", kind="thread.x")), loop_with("ii", kind="thread.x"))),
    ("block", "block loop in a serial loop", rewritten(T, loop_with("io", kind="serial"))),
    ("block", "block loop with a sibling", inside(T, "io", Barrier())),
    ("sync", "barrier in a thread loop", inside(P, "i", Barrier())),
    ("sync", "wait under a guard", inside(A, "io", Guard((Constraint.ge("io", 1),), (Wait(0),)))),
    ("team", "a team of two iterations", replace(G, body=(Loop("t", (Aff(0),), (Aff(2),), G.body, "team"),))),
    ("prefetch", "of a buffer that is gone", replace(G, body=(Prefetch(h.address("gone", 0)), *G.body))),
    ("prefetch", "to a fourth level", replace(G, body=(Prefetch(h.address("Y", 0, 0), 4), *G.body))),
    ("wait", "negative wait", inside(A, "io", Wait(-1))),
    ("arity", "coordinate missing", rewritten(T, leaf_with("S1", lambda x: replace(x, instance=h.affs("ii"))))),
    ("arity", "read missing", rewritten(T, leaf_with("S1", lambda x: replace(x, reads=x.reads[:1])))),
    ("arity", "unknown statement", rewritten(T, leaf_with("S1", lambda x: replace(x, statement="S9")))),
    (
        "inline",
        "update inlined",
        rewritten(
            T, leaf_with("S3", lambda x: replace(x, reads=(Inline("S1", h.affs(0, 0, 0), (h.address("A_shared", 0, 0),) * 2),)))
        ),
    ),
    (
        "inline",
        "writer of another buffer inlined",
        rewritten(T, leaf_with("S3", lambda x: replace(x, reads=(Inline("S0", h.affs(0, 0), ()),)))),
    ),
    ("rank", "index missing", rewritten(T, leaf_with("S1", lambda x: replace(x, target=h.address("acc", "ii"))))),
    ("rank", "cell of the wrong rank", rewritten(T, copy_with(lambda x: replace(x, cell=x.cell[:1])))),
    ("buffer", "undeclared buffer", replace(T, buffers=T.buffers[:-1])),
    ("buffer", "cache of another buffer", rewritten(T, leaf_with("S1", lambda x: replace(x, reads=(x.reads[1], x.reads[0]))))),
    ("copy", "copy between roots", rewritten(T, copy_with(lambda x: replace(x, src=h.address("Y", 0, 0))))),
    ("op", "identity of '='", inside(T, "ko", Identity(h.address("acc", 0, 0), "=", h.affs(0, 0)))),
    (
        "op",
        "merge of '-='",
        inside(T, "ko", Merge(h.address("acc", 0, 0), h.address("acc", 0, 1), "-=", h.affs(0, 0), h.affs(0, 1))),
    ),
    ("owner", "owner around some accesses only", buffer_with(T, "acc", owner="ko")),
    ("owner", "owner is no loop", buffer_with(T, "acc", owner="q")),
    ("owner", "owner in a sibling of that name", buffer_with(G, "acc", owner="k")),
    ("shared", "shared below a thread loop", rewritten(T, loop_with("ko", kind="thread.x"))),
]


@pytest.mark.parametrize(("rule", "what", "broken"), BROKEN, ids=[f"{r}: {w}" for r, w, _ in BROKEN])
def test_broken(rule: str, what: str, broken: Program) -> None:
    with pytest.raises(InternalError) as error:
        verify(broken)
    assert str(error.value).startswith(f"verify: {rule}: "), (what, str(error.value))
    assert RULES[rule] in str(error.value)


def test_every_rule_has_a_mutation() -> None:
    assert {rule for rule, _, _ in BROKEN} == set(RULES)


def test_the_position_is_named() -> None:
    with pytest.raises(InternalError, match=r"at 0\.0\.1\.2\.0\.0\.0 \(under io, jo, ko, ii, ji, ki\)"):
        verify(rewritten(T, leaf_with("S1", lambda x: replace(x, target=h.address("acc", "ii")))))
