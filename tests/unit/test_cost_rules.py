"""Nothing is priced as nothing by accident: an operation without a rule is a fault of tilec, named."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import pytest

import tilec
from tilec.cost import threadwork, units
from tilec.cost.operations import Key, operations
from tilec.cost.price import price
from tilec.errors import InternalError
from tilec.ir.expr import Binary, Call, Expr, Unary
from tilec.ir.program import Leaf, Merge, Program
from tilec.ir.tree import sites
from tilec.lang import exp, f32, i32, sizes, sqrt

N = sizes("N")


@dataclass(frozen=True)
class Strange:
    """A node that nothing knows."""

    dtype: str = "f32"


def with_value(p: Program, value: Expr) -> Program:
    """The statement S1 of a program with another value."""
    return replace(p, statements=tuple(replace(s, value=value) if s.name == "S1" else s for s in p.statements))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda v: Binary("<<", v, v, "f32"), "no rule for the operation '<<'"),
        (lambda v: Unary("!", v, "f32"), "no rule for the operation '!'"),
        (lambda v: Call("bessel", (v,), "f32"), "no rule for the function 'bessel'"),
        (lambda v: Binary("+", v, Strange(), "f32"), "no rule for an expression Strange"),
    ],
)
def test_an_operation_without_a_rule(wrong, says: str) -> None:
    p = tilec.workload("gemm").program
    bad = with_value(p, wrong(p.statement["S1"].value))
    with pytest.raises(InternalError, match=says):
        price(bad, None, {"M": 2, "N": 2, "K": 2})


def test_an_update_and_an_action_without_a_rule() -> None:
    p = tilec.workload("gemm").program
    leaf = next(s.action for s in sites(p.body) if isinstance(s.action, Leaf) and s.action.statement == "S1")
    bad = replace(p, statements=tuple(replace(s, op="^=") if s.name == "S1" else s for s in p.statements))
    with pytest.raises(InternalError, match="no rule for the update '\\^='"):
        operations(bad, leaf)
    with pytest.raises(InternalError, match="no rule for the update '\\^='"):
        operations(p, Merge(leaf.target, leaf.target, "^=", (), ()))
    with pytest.raises(InternalError, match="no rule for an action Strange"):
        operations(p, Strange())  # pyright: ignore[reportArgumentType]


def test_every_kernel_of_the_library_has_its_rules() -> None:
    """Each statement's operations are named; those that compute something are not nothing."""
    for name in tilec.workloads.names():
        p = tilec.workload(name).program
        for site in sites(p.body):
            found = operations(p, site.action)
            assert all(n > 0 for n in found.values()), name
    p = tilec.workload("gemm").program
    (update,) = (s.action for s in sites(p.body) if isinstance(s.action, Leaf) and s.action.statement == "S1")
    assert operations(p, update) == Counter({Key("add", "f32", "bf16"): 1, Key("mul", "f32", "bf16"): 1})


def everything(bound: str) -> Program:
    """A kernel with every kind of operation, over blocks, or over blocks and threads."""
    s = tilec.kernel(all_kinds).schedule(N=256)
    s = s.split("i", 64, into=("io", "ii")).bind("io", "block.x")
    return (s.bind("ii", "thread.x") if bound == "threads" else s).program


def all_kinds(A: f32[N], B: f32[N], C: f32[N], D: i32[N]):
    for i in range(N):
        C[i] = exp(A[i]) * B[i] - sqrt(abs(A[i])) / max(B[i], 1.0) + (A[i] if A[i] < B[i] else -B[i])
        D[i] = i32(A[i]) // 2


@pytest.mark.parametrize(("bound", "table"), [("blocks", "units._SLOTS"), ("threads", "threadwork._COST")])
def test_the_time_has_a_rule_for_every_kind_of_operation(bound: str, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: each rule taken away in turn is noticed, by an InternalError and not by a time without it."""
    p = everything(bound)
    kinds = set(price(p, "h100-sxm").flops_by_kind)
    assert {"add", "mul", "div", "sqrt", "exp", "minmax", "select", "compare", "sign", "convert"} <= kinds
    module = {"units": units, "threadwork": threadwork}[table.split(".")[0]]
    rules = getattr(module, table.split(".")[1])
    for kind in sorted(kinds & rules.keys()):
        monkeypatch.setattr(module, table.split(".")[1], {k: v for k, v in rules.items() if k != kind})
        with pytest.raises(InternalError, match=f"no cost rule for the operation '{kind}'"):
            price(p, "h100-sxm")
    monkeypatch.setattr(module, table.split(".")[1], rules)
    monkeypatch.setattr(module, "FUNCTIONS", {})
    with pytest.raises(InternalError, match="no cost rule for the operation 'exp'"):
        price(p, "h100-sxm")
