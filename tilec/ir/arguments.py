"""The arrays, sizes and scalars of a call, checked: every mistake is a LanguageError that says what is expected."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import numpy as np

from tilec.errors import LanguageError
from tilec.ir.affine import Aff, Div
from tilec.ir.dtypes import DTYPES, decode, encode
from tilec.ir.program import Buffer, Program
from tilec.ir.sizes import LARGEST_SIZE, assumption_text


def parameters(program: Program) -> tuple[Buffer, ...]:
    """The array parameters, in the order of their declaration."""
    return tuple(b for b in program.buffers if b.role == "param")


def written(program: Program) -> tuple[str, ...]:
    """Parameters that some statement writes: the outputs, in the order of the parameters."""
    targets = {s.target.buffer for s in program.statements}
    return tuple(b.name for b in parameters(program) if b.name in targets)


def required(program: Program) -> tuple[str, ...]:
    """Parameters the caller must give: those never written, and those that a statement reads (its own old value counts) before
    any statement has assigned to them, in source order. The others start at zero when omitted."""
    assigned: set[str] = set()
    needed: set[str] = set()
    for s in program.statements:
        needed |= {a.buffer for a in s.reads} - assigned
        if s.op == "=":
            assigned.add(s.target.buffer)
        elif s.target.buffer not in assigned:
            needed.add(s.target.buffer)
    outputs = set(written(program))
    return tuple(b.name for b in parameters(program) if b.name in needed or b.name not in outputs)


def call_order(program: Program) -> tuple[str, ...]:
    """Arrays and scalars in the order of a call; arrays first where the program does not say."""
    return program.parameters or (*(b.name for b in parameters(program)), *(n for n, _ in program.scalars))


def signature(program: Program) -> str:
    """`gemm(A: bf16[M, K], W: bf16[K, N], Y: bf16[M, N])`: the parameters in the order of a call."""
    types = {b.name: f"{b.dtype}[{', '.join(map(str, b.shape))}]" for b in parameters(program)} | dict(program.scalars)
    return f"{program.name}({', '.join(f'{n}: {types[n]}' for n in call_order(program))})"


def check_arrays(program: Program, arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Names, presence, dtype, rank and aliasing; the arrays as NumPy arrays."""
    buffers = {b.name: b for b in parameters(program)}
    for name in arrays:
        if name not in buffers:
            near = [b for b in buffers if b.lower() == name.lower()] or get_close_matches(name, buffers, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise LanguageError(f"{program.name}: no array parameter {name!r}.{hint}\n  expected: {signature(program)}")
    missing = [n for n in required(program) if n not in arrays]
    if missing:
        raise LanguageError(f"{program.name}: missing {', '.join(missing)}\n  expected: {signature(program)}")
    out: dict[str, np.ndarray] = {}
    for name, array in arrays.items():
        b = buffers[name]
        shape = ", ".join(map(str, b.shape))
        want = DTYPES[b.dtype].numpy
        if not isinstance(array, np.ndarray):
            raise LanguageError(
                f"{program.name}: {name} is a {type(array).__name__}; it must be a NumPy array of {want}, {b.dtype}[{shape}]"
            )
        if isinstance(array, np.ma.MaskedArray):
            raise LanguageError(f"{program.name}: {name} is a masked array, whose mask would be ignored: pass {name}.filled(…)")
        if array.dtype != want:
            raise LanguageError(
                f"{program.name}: {name} has dtype {array.dtype}; {b.dtype}[{shape}] needs {want}"
                f"\n  to convert: tilec.ir.dtypes.to_storage({b.dtype!r}, {name}) rounds once, as a store does"
            )
        if array.ndim != len(b.shape):
            raise LanguageError(
                f"{program.name}: {name} has shape {array.shape}; {b.dtype}[{shape}] has {len(b.shape)} dimensions"
            )
        out[name] = array
    outputs = set(written(program))
    names = list(out)
    for n, a in enumerate(names):
        for b in names[n + 1 :]:
            if (a in outputs or b in outputs) and _overlap(out[a], out[b]):
                who = a if a in outputs else b
                raise LanguageError(
                    f"{program.name}: {a} and {b} share memory and {who} is written; two parameters never alias: pass a copy"
                )
    return out


def _overlap(a: np.ndarray, b: np.ndarray) -> bool:
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=100_000)  # pyright: ignore[reportArgumentType]  (the stub knows only 0 and -1)
    except np.exceptions.TooHardError:  # the two at least interleave: refuse
        return True


def check_sizes(program: Program, arrays: Mapping[str, np.ndarray], given: Mapping[str, int] | None) -> dict[str, int]:
    """Every size of the program: given, bound, or solved from the arrays' shapes; consistent, in 1..2^31-1, within `where`."""
    name = program.name
    sizes: dict[str, int] = dict(program.bound)
    origin = {n: "bound in the schedule" for n in sizes}
    for n, value in (given or {}).items():
        if n not in program.sizes and n not in sizes:
            raise LanguageError(f"{name}: no size {n!r}. Sizes: {', '.join((*program.sizes, *sizes)) or 'none'}")
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise LanguageError(f"{name}: size {n} = {value!r}; a size is a whole number")
        if n in sizes and sizes[n] != value:
            raise LanguageError(f"{name}: size {n} is {sizes[n]} ({origin[n]}), not {value}")
        sizes[n], origin[n] = int(value), "given"
    buffers = [(b, arrays[b.name]) for b in parameters(program) if b.name in arrays]
    equations = [(b, d, e, a.shape[d]) for b, a in buffers for d, e in enumerate(b.shape)]
    progress = True
    while progress:
        progress = False
        for b, d, e, extent in equations:
            solved = _solve(e, extent, sizes)
            if solved is not None:
                n, value = solved
                sizes[n], origin[n] = value, f"from {b.name}.shape[{d}] = {extent}"
                progress = True
    unknown = [n for n in program.sizes if n not in sizes]
    if unknown:
        raise LanguageError(
            f"{name}: size {', '.join(unknown)} follows from no array given; pass it: sizes={{{unknown[0]!r}: …}}"
        )
    for n, value in sizes.items():
        if not 1 <= value <= LARGEST_SIZE:
            raise LanguageError(f"{name}: size {n} = {value} ({origin[n]}); sizes are 1 to 2^31 - 1")
    for b, d, e, extent in equations:
        if e.eval(sizes) != extent:
            because = ", ".join(f"{n} = {sizes[n]} ({origin[n]})" for n in sorted(e.names)) or "it is a constant"
            shape = ", ".join(map(str, b.shape))
            raise LanguageError(
                f"{name}: {b.name} has shape {arrays[b.name].shape}; "
                f"dimension {d} of {b.dtype}[{shape}] is {e.eval(sizes)}: {because}"
            )
    for c in program.where:
        if not c.holds(sizes):
            values = ", ".join(f"{n} = {sizes[n]}" for n in sorted(c.names))
            raise LanguageError(f"{name}: assumes {assumption_text(c)}, which {values} does not meet")
    return sizes


def _solve(e: Aff, extent: int, sizes: Mapping[str, int]) -> tuple[str, int] | None:
    """The one size not yet known in `e == extent`, if it stands alone outside divisions and has a whole solution."""
    rest = e.subs(sizes)
    if len(rest.terms) != 1 or isinstance(rest.terms[0][0], Div):
        return None
    n, c = rest.terms[0]
    assert isinstance(n, str)
    value, remainder = divmod(extent - rest.const, c)
    return (n, value) if remainder == 0 else None


def check_scalars(program: Program, given: Mapping[str, float] | None) -> dict[str, Any]:
    """Scalar parameters as arithmetic values, rounded to their dtype once."""
    given = given or {}
    dtypes = dict(program.scalars)
    wrong = [n for n in given if n not in dtypes]
    missing = [n for n in dtypes if n not in given]
    if wrong or missing:
        what = f"no scalar parameter {wrong[0]!r}" if wrong else f"missing scalar {', '.join(missing)}"
        raise LanguageError(f"{program.name}: {what}\n  expected: {signature(program)}")
    out: dict[str, Any] = {}
    for n, value in given.items():
        dtype = dtypes[n]
        d = DTYPES[dtype]
        if not isinstance(value, int | float | np.number):
            raise LanguageError(f"{program.name}: scalar {n} = {value!r}; it must be a number ({dtype})")
        try:
            exact = np.asarray(value, dtype=np.float64)
        except OverflowError:
            raise LanguageError(f"{program.name}: scalar {n} is an integer beyond every {dtype}") from None
        if d.kind == "int" and not (float(value).is_integer() and d.lowest <= value <= d.largest):
            raise LanguageError(f"{program.name}: scalar {n} = {value!r} is not a whole number within {dtype}")
        out[n] = decode(dtype, encode(dtype, exact))[()]
    return out
