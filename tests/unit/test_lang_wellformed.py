"""Accesses out of bounds and reads of never-written cells: found exactly, at the smallest sizes; whole texts."""

from __future__ import annotations

import itertools
import random

import pytest

import tilec.lang
from tilec import workloads
from tilec.errors import LanguageError, LegalityError
from tilec.ir.affine import Aff, Constraint
from tilec.ir.program import Program
from tilec.lang import Builder, from_source, sizes
from tilec.poly.wellformed import check, initial_reads

NAMES: dict[str, object] = {n: getattr(tilec.lang, n) for n in ("f32", "bf16", "i32")}
NAMES |= dict(zip("MNK", sizes("M N K"), strict=True))

PROGRAMS = {
    "above": (
        "A: f32[N], B: f32[N]",
        "for i in range(N):\n    B[i] = A[i + 1]",
        "k.py:3: S0[0] reads A[1]; A has 1 element (N=1)",
    ),
    "below": (
        "A: f32[N], B: f32[N]",
        "for i in range(N):\n    B[i - 2] = A[i]",
        "k.py:3: S0[0] writes B[-2]; B has 1 element (N=1)",
    ),
    "only_from_a_size_on": (
        "A: f32[M, N], B: f32[M, N]",
        "for i in range(M):\n    for j in range(i):\n        B[i, j] = A[i, j]",
        "k.py:4: S0[2,1] reads A[2,1]; A has shape [3, 1] (M=3, N=1)",
    ),
    "an_update": (
        "B: f32[N]",
        "B[0] = 1\nfor i in range(N + 1):\n    B[i] += 1",
        "k.py:4: S1[1] updates B[1]; B has 1 element (N=1)",
    ),
    "fixed_extents": (
        "A: f32[4], B: f32[4, 2]",
        "for i in range(4):\n    B[i, i // 2] = A[4 - i]",
        "k.py:3: S0[0] reads A[4]; A has 4 elements",
    ),
    "fixed_extents_in_a_row": (
        "B: f32[4, 2]",
        "for i in range(5):\n    B[i, i % 2] = 0",
        "k.py:3: S0[4] writes B[4,0]; B has shape [4, 2]",
    ),
    "private_array": (
        "B: f32[N]",
        "for i in range(N):\n    t: f32[3]\n    for j in range(i):\n        t[j] = 0\n    B[i] = 1",
        "k.py:5: S0[4,3] writes t[3]; t has 3 elements (N=5)",
    ),
    "conditional_expression_reads_both": (
        "A: f32[N], B: f32[N]",
        "for i in range(N):\n    B[i] = A[i - 1] if i > 0 else 0",
        "k.py:3: S0[0] reads A[-1]; A has 1 element (N=1)",
    ),
    "never_written": (
        "B: f32[N]",
        "T: f32[N]\nfor i in range(1, N):\n    T[i] = i\nfor i in range(N):\n    B[i] = T[i]",
        "k.py:6: S1[0] reads T[0], which nothing has written before (N=1)\n  write every element before it is read",
    ),
    "written_too_late": (
        "B: f32[N]",
        "T: f32[N]\nfor i in range(N - 1):\n    B[i] = T[i + 1]\n    T[i + 1] = 0",
        "k.py:4: S0[0] reads T[1], which nothing has written before (N=2)\n  write every element before it is read",
    ),
    "scalar_without_first_value": (
        "A: f32[N], B: f32[N]",
        "for i in range(N):\n    t: f32\n    for j in range(N):\n        t += A[j]\n    B[i] = t",
        "k.py:5: S0[0,0] updates t, which nothing has written before (N=1)\n  give it a first value, as in t: f32 = 0",
    ),
    "undefined_again_in_the_next_iteration": (
        "A: f32[N], B: f32[N]",
        "for i in range(N):\n    t: f32\n    if i == 0:\n        t = A[i]\n    B[i] = t",
        "k.py:6: S1[1] reads t, which nothing has written before (N=2)\n  give it a first value, as in t: f32 = 0",
    ),
    "private_row_partly_written": (
        "A: f32[M, N], B: f32[M, N]",
        "for i in range(M):\n    t: f32[N]\n    for j in range(N - i):\n        t[j] = A[i, j]\n"
        "    for j in range(N):\n        B[i, j] = t[j]",
        "k.py:7: S1[1,0] reads t[0], which nothing has written before (M=2, N=1)\n  write every element before it is read",
    ),
}


def program(parameters: str, body: str) -> Program:
    text = f"def f({parameters}):\n" + "\n".join("    " + line for line in body.splitlines())
    return from_source(text, NAMES, file="k.py").program


@pytest.mark.parametrize("name", PROGRAMS)
def test_refused(name: str) -> None:
    parameters, body, text = PROGRAMS[name]
    with pytest.raises(LanguageError) as e:
        check(program(parameters, body), "k.py")
    assert str(e.value) == text


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_witness_is_the_smallest(name: str) -> None:
    """Enumerated in plain Python: at the sizes named the program is wrong, at all with a smaller sum it is right."""
    p = program(*PROGRAMS[name][:2])
    text = PROGRAMS[name][2].splitlines()[0]
    named = dict(part.split("=") for part in text[text.rindex("(") + 1 : -1].split(", ")) if text.endswith(")") else {}
    for values in itertools.product(range(1, 6), repeat=len(p.sizes)):
        env = dict(zip(p.sizes, values, strict=True))
        wanted = {k: int(v) for k, v in named.items()}
        if env == wanted:
            assert is_wrong(p, env)
        elif sum(values) < sum(wanted.values()):
            assert not is_wrong(p, env)


def is_wrong(p: Program, sizes: dict[str, int]) -> bool:
    """Run the accesses in the written order (an ordered list of statement instances) and look at each."""
    written: set[tuple[object, ...]] = set()
    for s, env in instances(p.body, p, dict(sizes)):
        for access in (*s.reads, *([s.target] if s.op != "=" else []), s.target):
            at = tuple(e.eval(env) for e in access.index)
            buffer = p.buffer[access.buffer]
            if not all(0 <= x < e.eval(sizes) for x, e in zip(at, buffer.shape, strict=True)):
                return True
        for access in (*s.reads, *([s.target] if s.op != "=" else [])):
            at = tuple(e.eval(env) for e in access.index)
            if p.buffer[access.buffer].role == "temp" and (access.buffer, at) not in written:
                return True
        written.add((s.target.buffer, tuple(e.eval(env) for e in s.target.index)))
    return False


def instances(body, p: Program, env: dict[str, int]):
    for node in body:
        if hasattr(node, "var"):
            low, high = max(e.eval(env) for e in node.lower), min(e.eval(env) for e in node.upper)
            for v in range(low, high):
                yield from instances(node.body, p, {**env, node.var: v})
        elif hasattr(node, "conditions"):
            if all(c.holds(env) for c in node.conditions):
                yield from instances(node.body, p, env)
        else:
            yield p.statement[node.statement], env


def random_program(seed: int) -> Program:
    """One or two nests over a parameter and a temporary, with shifts that may leave the arrays or miss cells."""
    rng = random.Random(seed)
    b = Builder("f")
    n, m = b.size("N"), b.size("M")
    out = b.param("B", "f32", [n, m])
    temp = b.temp("T", "f32", [n, m])
    for nest in range(2):
        with b.loop("i", rng.choice([0, 0, 1]), n + rng.choice([0, 0, 0, -1, 1])) as i:
            private = b.temp(f"t{nest}", "f32")
            lower, upper = rng.choice([(Aff(0), m), (Aff(0), m), (i, m), (Aff(0), i + 1)])
            if rng.random() < 0.8:
                b.store(private, [], "=", 0)
            with b.loop("j", lower, [upper, m] if rng.random() < 0.8 else upper) as j:
                with b.when(*([Constraint.lt(j, i + 2)] if rng.random() < 0.3 else [])):
                    b.store(private, [], rng.choice(["=", "+="]), 1)
                source, target = (out, temp) if nest == 0 else (temp, out)
                shift = rng.choice([0, 0, 0, 1, -1])
                op = rng.choice(["=", "=", "+="]) if nest else "="
                b.store(target, [i, j], op, source[i + shift, j] + private[()])
    return b.program()


def test_against_enumeration() -> None:
    """Random programs: refused exactly when some small sizes are wrong, and those named are."""
    refused = 0
    for seed in range(80):
        p = random_program(seed)
        wrong = [e for v in itertools.product(range(1, 5), repeat=2) if is_wrong(p, e := dict(zip("NM", v, strict=True)))]
        try:
            check(p)
        except LanguageError as e:
            refused += 1
            text = str(e).splitlines()[0]
            n, m = (int(x.split("=")[1]) for x in text[text.rindex("(") + 1 : -1].split(", "))
            assert {"N": n, "M": m} in wrong, (seed, text)
        else:
            assert not wrong, seed
    assert 20 < refused < 75


def test_assumptions_are_used() -> None:
    names = {**NAMES, "N": sizes("N", where="N % 2 == 0")}
    text = "def f(A: f32[N], B: f32[N]):\n    for i in range(N - 1):\n        B[2 * ((i + 1) // 2)] = A[i]\n"
    check(from_source(text, names).program)
    with pytest.raises(LanguageError):
        check(from_source(text.replace("N - 1", "N"), names).program)


@pytest.mark.parametrize("name", workloads.names())
def test_the_library_is_wellformed(name: str) -> None:
    check(workloads.get(name).program)


def test_initial_reads() -> None:
    found = {name: sorted(initial_reads(workloads.get(name).program)) for name in ("jacobi2d", "syrk", "rowquant", "gemm")}
    assert found == {"jacobi2d": ["A", "B"], "syrk": ["A", "C"], "rowquant": ["A"], "gemm": ["A", "W"]}


def test_out_of_budget_is_unknown_not_wrong() -> None:
    with pytest.raises(LegalityError) as e:
        check(program("A: f32[N], B: f32[N]", "for i in range(N):\n    B[i] = A[i]"), budget=1)
    assert (e.value.witness, e.value.reason) == (None, "the operation budget is spent")
    assert str(e.value) == (
        "check of kernel 'f': not decided within the operation budget.\n"
        "  give more with proof_budget=…, or bind some of the sizes"
    )
