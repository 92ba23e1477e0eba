"""Candidates for a GPU: emitted as Triton, kept where the block fits by the rules of cost/tile_fit.py, compiled without a GPU,
ranked again with the registers and shared bytes that the machine code has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilec.codegen.triton import Emitted, emit, options_for
from tilec.codegen.triton_kernel import KernelText
from tilec.codegen.triton_value import F8
from tilec.cost.cost import Cost
from tilec.cost.occupancy import Occupancy, occupancy
from tilec.cost.price import price
from tilec.cost.tile_fit import TENSOR_COLUMNS, Needs, Operand, Product, Stored, TileBlock, needs
from tilec.errors import ScheduleError, TilecError
from tilec.ir.dtypes import DTYPES
from tilec.ir.program import Program
from tilec.lower.slices import keeps_values
from tilec.runtime.triton_jobs import Compiled, Progress, capability, compile_all, jobs
from tilec.search.result import Candidate, Rejection, Rejections, Tuned
from tilec.targets import Target, load

WARPS = (4, 8)


@dataclass(frozen=True)
class Built:
    """A candidate as Triton. needs: predicted, per kernel. compiled: what the machine code has, per kernel; () before it is
    compiled. cost: the candidate's, with the registers of its largest kernel once they are known."""

    candidate: Candidate
    emitted: Emitted
    target: Target
    needs: tuple[Needs, ...]
    compiled: tuple[Compiled, ...] = ()
    cost: Cost | None = None

    @property
    def label(self) -> str:
        """Structure, knobs and warps."""
        knobs = " ".join(f"{k}={v}" for k, v in self.candidate.knobs.items())
        return f"{self.candidate.structure}: {knobs} warps={self.emitted.num_warps}"

    def occupancies(self, predicted: bool = False) -> tuple[Occupancy, ...]:
        """Blocks per SM of each kernel, by what was compiled or predicted."""
        found = self.needs if predicted else [Needs(c.shared, c.registers, c.tensor_memory) for c in self.compiled]
        return tuple(resident(n, self.target, self.emitted.num_warps) for n in found)


@dataclass(frozen=True)
class Ranked:
    """Candidates by the model with what the compiler says, best first; rejected: why others fell, with an example each."""

    best: tuple[Built, ...]
    rejected: Mapping[str, Rejection]


def block_of(kernel: KernelText, emitted: Emitted, sizes: Mapping[str, int] | None = None) -> TileBlock:
    """The figures of a kernel's block that its resources follow from."""
    bytes_for_f8 = emitted.options.bytes_for_f8
    products = []
    for d in kernel.products:
        (a, a_type, a_loaded), (b, b_type, b_loaded) = d.left, d.right
        left = Operand(a, d.rows, d.depth, DTYPES[a_type].bytes, a_loaded)
        right = Operand(b, d.depth, d.columns, DTYPES[b_type].bytes, b_loaded)
        products.append(Product(d.rows, d.columns, d.depth, left, right, d.stages))
    stored = []
    for o in kernel.outputs:
        numbers = [e if isinstance(e, int) else _power(kernel.extents[e].eval(sizes or {})) for e in o.extents]
        if len(numbers) == 2:
            stored.append(Stored(numbers[0], numbers[1], DTYPES[o.dtype].bytes, o.slices))
    functions = sum(n for f, n in kernel.used.items() if keeps_values(f))
    narrow = bytes_for_f8 and any(kernel.shapes[b].dtype in F8 for b in kernel.buffers)
    fed = sum(_number(e, kernel, sizes) * DTYPES[dtype].bytes for e, dtype in kernel.fed)
    return TileBlock(
        emitted.num_warps,
        tuple(products),
        tuple(stored),
        functions,
        narrow,
        kernel.used["reduction"] > 0,
        fed if any(not (p.left.loaded and p.right.loaded) for p in products) else 0,
        kernel.used["division"],
    )


def _number(extents: Sequence[int | str], kernel: KernelText, sizes: Mapping[str, int] | None) -> int:
    """Elements of a tile."""
    out = 1
    for e in extents:
        out *= e if isinstance(e, int) else _power(kernel.extents[e].eval(sizes or {}))
    return out


def _power(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()


def predicted(emitted: Emitted, machine: Target, sizes: Mapping[str, int]) -> tuple[Needs, ...]:
    """What each kernel of a file needs on a machine, by the rules."""
    number = capability(machine)
    return tuple(needs(block_of(k, emitted, sizes), number) for k in emitted.kernels)


def resident(n: Needs, machine: Target, warps: int) -> Occupancy:
    """Blocks per SM with those needs; tensor memory, which blocks on an SM share, is one more limit."""
    found = occupancy(machine, 32 * warps, n.registers, n.shared)
    most = TENSOR_COLUMNS // n.columns if n.columns else found.blocks
    if most >= found.blocks:
        return found
    return replace(
        found,
        blocks=most,
        warps=most * warps,
        fraction=None if found.fraction is None else found.fraction * most / found.blocks,
        limiters=("tensor memory",),
        limits={**found.limits, "tensor memory": most},
    )


def misfit(n: Needs, machine: Target, warps: int) -> str | None:
    """Why a block with those needs cannot run, or runs with spilled registers; None where it fits."""
    limits = machine.limits
    assert limits is not None
    if n.shared > limits.shared_per_block:
        return f"needs {n.shared:,} B of shared memory per block; {machine.name} allows {limits.shared_per_block:,} B"
    if n.columns > TENSOR_COLUMNS:
        return f"needs {n.columns} columns of tensor memory; {machine.name} has {TENSOR_COLUMNS}"
    if n.wanted is not None and n.spills:
        return f"wants {n.wanted} registers per thread and spills; {machine.name} allows {limits.registers_per_thread}"
    problems = occupancy(machine, 32 * warps, n.registers, n.shared).problems
    return problems[0] if problems else None


def emitted_candidates(
    tuned: Tuned, count: int, target: str | Target | None = None, warps: Sequence[int] = WARPS
) -> tuple[list[Built], Mapping[str, Rejection]]:
    """The best `count` candidates of a search that have a form in Triton and fit by the rules, in the order of the model; each
    tile with each number of warps that fits. What fell is counted by reason."""
    machine = load(target or tuned.target)
    out: list[Built] = []
    seen: set[str] = set()
    fallen = Rejections()
    for row in tuned.rows:
        if len(out) >= count:
            break
        try:
            # most fall by the rules: only those that are kept are proved
            program = tuned.draft(row).program if tuned.draft else tuned.build(row).schedule.program
            fitting = _fitting(program, row.structure, row.knobs, tuned.sizes, machine, warps, seen, fallen)
            if not fitting:
                continue
            c = tuned.build(row)
        except TilecError as e:
            fallen.add("not legal or not expressible", 1, f"{row.structure}: {e}")
            continue
        for w, want in fitting[: count - len(out)]:
            out.append(Built(c, emit(c.schedule.program, options_for(machine, w)), machine, want, cost=c.cost))
    return out, fallen.found


def _fitting(
    program: Program,
    structure: str,
    knobs: Mapping[str, object],
    sizes: Mapping[str, int],
    machine: Target,
    warps: Sequence[int],
    seen: set[str],
    fallen: Rejections,
) -> list[tuple[int, tuple[Needs, ...]]]:
    """Of some numbers of warps, those with which the program fits by the rules, and what it needs then."""
    out = []
    for w in warps:
        try:
            made = emit(program, options_for(machine, w))
        except ScheduleError as e:
            fallen.add("no form in Triton", 1, f"{structure}: {e}")
            return []
        code = "\n".join(line for k in made.kernels for line in k.lines) + f"\n{w}"
        if code in seen:
            continue
        seen.add(code)
        want = predicted(made, machine, sizes)
        reason = next((r for n in want if (r := misfit(n, machine, w)) is not None), None)
        if reason is None:
            out.append((w, want))
            continue
        label = f"{structure}: {' '.join(f'{k}={v}' for k, v in knobs.items())} warps={w}"
        fallen.add("would spill" if "spills" in reason else "would not fit", 1, f"{label} {reason}")
    return out


def compiled_best(
    tuned: Tuned,
    count: int = 8,
    target: str | Target | None = None,
    warps: Sequence[int] = WARPS,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Ranked:
    """The best few by the model, compiled; those that do not fit or spill dropped, the rest ranked with their real registers.

    Raises MeasureError where Triton is missing.
    """
    machine = load(target or tuned.target)
    found, rejected = emitted_candidates(tuned, count, machine, warps)
    return ranked(found, tuned.sizes, machine, rejected, workers, progress)


def ranked(
    found: Sequence[Built],
    sizes: Mapping[str, int],
    machine: Target,
    rejected: Mapping[str, Rejection],
    workers: int | None = None,
    progress: Progress | None = None,
) -> Ranked:
    """Emitted candidates compiled, and those that neither misfit nor spill by their time with real registers."""
    fallen = Rejections()
    fallen.found.update(rejected)
    number = capability(machine)
    every = [jobs(b.emitted, sizes, number) for b in found]
    results = iter(compile_all([j for js in every for j in js], workers, progress))
    kept: list[Built] = []
    for b, js in zip(found, every, strict=True):
        mine = tuple(next(results) for _ in js)
        reason = _fell(b, mine, machine)
        if reason is not None:
            fallen.add(reason[0], 1, reason[1])
            continue
        kept.append(_priced(replace(b, compiled=mine)))
    kept.sort(key=lambda b: (_seconds(b), -min(o.blocks for o in b.occupancies())))
    return Ranked(tuple(kept), fallen.found)


def _fell(b: Built, mine: Sequence[Compiled], machine: Target) -> tuple[str, str] | None:
    for c in mine:
        if c.error is not None:
            return "does not compile", f"{b.label}: {c.error}"
        if c.spills:
            return "spills", f"{b.label} has {c.spills} loads and stores of spilled registers"
        problem = misfit(Needs(c.shared, c.registers, c.tensor_memory), machine, b.emitted.num_warps)
        if problem is not None:
            return "does not fit", f"{b.label} {problem}"
    return None


def _priced(b: Built) -> Built:
    """With the registers of the kernel that has most."""
    try:
        cost = price(b.candidate.schedule.program, b.target, {}, 32 * b.emitted.num_warps, max(c.registers for c in b.compiled))
    except TilecError:
        return b
    return replace(b, cost=cost)


def _seconds(b: Built) -> float:
    return b.cost.time if b.cost is not None else float("inf")
