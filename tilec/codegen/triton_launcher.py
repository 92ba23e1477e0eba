"""The launcher of emitted Triton kernels: sizes from shapes, checks, outputs and scratch arrays, one launch after another."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod

from tilec.codegen.triton_kernel import KernelText
from tilec.codegen.triton_text import INDENT, TritonScope, call
from tilec.codegen.triton_value import F8
from tilec.errors import ScheduleError
from tilec.ir.affine import Aff
from tilec.ir.arguments import call_order, required, signature, written
from tilec.ir.program import Buffer, Program

TORCH = {
    "f64": "torch.float64",
    "f32": "torch.float32",
    "f16": "torch.float16",
    "bf16": "torch.bfloat16",
    "f8e4m3": "torch.float8_e4m3fn",
    "f8e5m2": "torch.float8_e5m2",
    "i32": "torch.int32",
    "i8": "torch.int8",
}

CHECK = """\
def _check(name, tensor, dtype, shape):
    if tensor.dtype != dtype or tuple(tensor.shape) != shape:
        found = f"{tensor.dtype} {tuple(tensor.shape)}"
        raise ValueError(f"{name} is {found}, not {dtype} {shape}")
"""


def launcher(
    program: Program,
    original: Program,
    kernels: Sequence[KernelText],
    names: Mapping[str, str],
    warps: int,
    stages: int,
    bytes_for_f8: bool,
) -> list[str]:
    """The check, and the function that is called like the kernel."""
    scope = TritonScope(program, {n: k for k, n in enumerate(program.sizes)}, names, device=False)
    arrays = {b.name: b for b in program.buffers if b.role == "param"}
    needed = set(required(original))
    order = call_order(original)
    arguments = [names[n] for n in order if n not in arrays or n in needed]
    optional = [names[n] for n in order if n in arrays and n not in needed]
    loose = loose_sizes(original)
    head = call(
        f"def {names[program.name]}(", [*arguments, *(f"{o}=None" for o in optional), *(names[n] for n in loose)], "):", 0
    )
    if loose and optional:
        head = call(
            f"def {names[program.name]}(", [*arguments, *(names[n] for n in loose), *(f"{o}=None" for o in optional)], "):", 0
        )
    out = [*CHECK.splitlines(), "", "", *head]
    text = signature(program)
    quotes = '    """' if len(text) <= 78 else '    r"""'
    out.append(f'{quotes}{text}"""' if len(text) <= 78 else f'    """{program.name}; outputs that are omitted are made."""')
    body = _sizes(program, [arrays[n] for n in order if n in needed], scope, names, loose)
    for n in order:
        if n in needed:
            body += _check(arrays[n], scope, names)
    device = next((names[n] for n in order if n in needed), None)
    where = f"device={device}.device" if device else 'device="cuda"'
    full = _covered(original)
    for n in order:
        if n in arrays and n not in needed:
            make = "empty" if n in full else "zeros"
            body.append(f"if {names[n]} is None:")
            made = call(
                f"{names[n]} = torch.{make}(", [_shape(arrays[n], scope), f"dtype={TORCH[arrays[n].dtype]}", where], ")", 2
            )
            body += [line.removeprefix(INDENT) for line in made]
            body += _check(arrays[n], scope, names)
    used = {b for k in kernels for b in k.buffers}
    for b in program.buffers:
        if b.name in used and b.role != "param":
            made = call(f"{names[b.name]} = torch.empty(", [_shape(b, scope), f"dtype={TORCH[b.dtype]}", where], ")", 1)
            body += [line.removeprefix(INDENT) for line in made]
    for k in kernels:
        body += _launch(program, k, scope, names, warps, stages, bytes_for_f8)
    results = [names[n] for n in order if n in written(original) and n not in needed]
    if results:
        body.append(f"return {', '.join(results)}")
    return [*out, *(INDENT + line for line in body)]


def loose_sizes(program: Program) -> tuple[str, ...]:
    """Sizes that no required array tells."""
    needed = set(required(program))
    told = {n for b in program.buffers if b.name in needed for e in b.shape for n in e.names}
    return tuple(n for n in program.sizes if n not in told)


def _shape(b: Buffer, scope: TritonScope) -> str:
    return f"({', '.join(map(scope.aff, b.shape))}{',' if len(b.shape) == 1 else ''})"


def _check(b: Buffer, scope: TritonScope, names: Mapping[str, str]) -> list[str]:
    name = names[b.name]
    lines = call("_check(", [f'"{name}"', name, TORCH[b.dtype], _shape(b, scope)], ")", 1)
    return [line.removeprefix(INDENT) for line in lines]


def _sizes(
    program: Program, arrays: Sequence[Buffer], scope: TritonScope, names: Mapping[str, str], loose: Sequence[str]
) -> list[str]:
    """Each size from a dimension in which it is the only one not known yet."""
    out: list[str] = []
    known = {*loose}
    left = [n for n in program.sizes if n not in known]
    while left:
        for b in arrays:
            for d, e in enumerate(b.shape):
                unknown = [n for n in e.names if n not in known]
                if len(unknown) == 1 and abs(e.coefficient(unknown[0])) == 1:
                    n = unknown[0]
                    rest = (e - Aff.of(n) * e.coefficient(n)) * e.coefficient(n)
                    size = f"{names[b.name]}.shape[{d}]"
                    minus = scope.aff(-rest)
                    text = size if rest == Aff(0) else f"{size} {'- ' + minus[1:] if minus.startswith('-') else '+ ' + minus}"
                    out.append(f"{names[n]} = {text}")
                    known.add(n)
                    left.remove(n)
                    break
            else:
                continue
            break
        else:
            raise ScheduleError(
                f'emit("triton"): no array has a dimension that gives {", ".join(left)}; bind it: schedule({left[0]}=…)'
            )
    return out


def _covered(program: Program) -> set[str]:
    """Parameters that one statement writes whole, so that an omitted one need not be zero first."""
    source = program.source
    out = set()
    for s in source.statements:
        b = source.buffer[s.target.buffer]
        index = [e.single for e in s.target.index]
        if s.op != "=" or None in index or len(set(index)) != len(index):
            continue
        conditions = set(s.domain)
        whole = all(
            any(c.expr == Aff.of(v) for c in conditions) and any(c.expr == size - v - 1 for c in conditions)
            for v, size in zip((v for v in index if v), b.shape, strict=True)
        )
        if whole and len(conditions) == 2 * len(s.loops):
            out.add(b.name)
    return out


def _launch(
    program: Program,
    k: KernelText,
    scope: TritonScope,
    names: Mapping[str, str],
    warps: int,
    stages: int,
    bytes_for_f8: bool,
) -> list[str]:
    arguments: list[str] = []
    for n in k.buffers:
        b = program.buffer[n]
        name = names[n]
        arguments.append(f"{name}.view(torch.uint8)" if bytes_for_f8 and b.dtype in F8 else name)
        if b.shape:
            arguments.append(f"*{name}.stride()")
    arguments += [names[n] for n in (*k.sizes, *k.scalars)]
    arguments += [f"{e}=triton.next_power_of_2({scope.aff(size)})" for e, size in k.extents.items()]
    arguments += [f"num_warps={warps}", f"num_stages={stages}", f"enable_fp_fusion={program.contract}"]
    if all(len(c) == 1 and c[0].is_const for c in k.grid):
        blocks = str(prod(c[0].const for c in k.grid if c))
    else:
        texts = [scope.bound("min", c) for c in k.grid]
        blocks = " * ".join(t if re.fullmatch(r"\w+|triton\.cdiv\([^()]*\)|min\(.*\)", t) else f"({t})" for t in texts)
    lines = [f"blocks = {blocks}", *(s.removeprefix(INDENT) for s in call(f"{k.name}[(blocks,)](", arguments, ")", 1))]
    return lines
