"""Who reads and writes a buffer where: what placement and storage primitives ask of a tree before they rewrite it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tilec.errors import ScheduleError
from tilec.ir.affine import Aff, Constraint
from tilec.ir.program import BLOCK_KINDS, THREAD_KINDS, Address, Barrier, Buffer, Commit, Guard, Loop, Node, Program, Wait
from tilec.ir.tree import Body, Position, Site, addresses, at, loop_conditions, loops, path_to, sites, updates
from tilec.poly.regions import Piece


@dataclass(frozen=True)
class Use:
    """One access of a buffer: where, its physical address, its logical index, and whether it writes (an update also reads)."""

    site: Site
    address: Address
    logical: tuple[Aff, ...]
    write: bool
    update: bool = False

    @property
    def position(self) -> Position:
        return self.site.position

    @property
    def reads(self) -> bool:
        return not self.write or self.update

    @property
    def piece(self) -> Piece:
        return Piece(self.logical, self.site.conditions)


def uses(program: Program, name: str, under: Position = ()) -> list[Use]:
    """Every access of the buffer below `under`, in the order of the text."""
    return all_uses(program, under).get(name, [])


def all_uses(program: Program, under: Position = ()) -> dict[str, list[Use]]:
    """The same for every buffer."""
    out: dict[str, list[Use]] = {}
    for site in sites(program.body):
        if not inside(site.position, under):
            continue
        update = updates(site.action, program)
        for address, logical, write in addresses(site.action, program):
            logical = with_slot(program.buffer[address.buffer], address, logical)
            out.setdefault(address.buffer, []).append(Use(site, address, logical, write, write and update))
    return out


def with_slot(b: Buffer, address: Address, logical: tuple[Aff, ...]) -> tuple[Aff, ...]:
    """The logical index; that of a partial result begins with its slot, which no statement knows."""
    return (address.index[0], *logical) if b.role == "partial" else logical


def inside(position: Position, ancestor: Position) -> bool:
    return position[: len(ancestor)] == ancestor


def common(positions: Iterable[Position]) -> Position:
    """The deepest position at or above all of them."""
    first, *rest = positions
    for p in rest:
        n = 0
        while n < min(len(first), len(p)) and first[n] == p[n]:
            n += 1
        first = first[:n]
    return first


def common_node(positions: Iterable[Position]) -> Position:
    """The deepest loop or guard strictly above all of them (() is the root)."""
    return common([p[:-1] for p in positions])


def loops_to(body: Body, position: Position) -> list[Loop]:
    """The loops at or above the node at `position`, outermost first."""
    path: list[Node] = [*path_to(body, position)]
    if position:
        path.append(at(body, position))
    return [n for n in path if isinstance(n, Loop)]


def owner_position(program: Program, b: Buffer, found: Sequence[Use]) -> Position:
    """Where the loop stands that owns the buffer; () when the program does, or the default placement decides."""
    if b.owner is None or not found or (b.role == "temp" and not b.placed):
        return ()
    position = found[0].position
    depth = next(n for n, x in enumerate(path_to(program.body, position), 1) if isinstance(x, Loop) and x.var == b.owner)
    return position[:depth]


def conditions_to(body: Body, position: Position) -> tuple[Constraint, ...]:
    """Bounds and guards of every node at or above `position`."""
    out: list[Constraint] = []
    for node in [*path_to(body, position), at(body, position)] if position else []:
        out += node.conditions if isinstance(node, Guard) else loop_conditions(node) if isinstance(node, Loop) else []
    return tuple(out)


def innermost_loop(body: Body, position: Position) -> Position:
    """The position of the innermost loop at or above `position`; () when there is none."""
    while position and not isinstance(at(body, position), Loop):
        position = position[:-1]
    return position


def children(body: Body, position: Position) -> Body:
    """The body of the node at `position` (the program's for ())."""
    if not position:
        return body
    node = at(body, position)
    assert isinstance(node, Loop | Guard)
    return node.body


def insert(body: Body, position: Position, before: Sequence[Node] = (), after: Sequence[Node] = ()) -> Body:
    """New siblings around the node at `position`."""
    n, rest = position[0], position[1:]
    if not rest:
        return (*body[:n], *before, body[n], *after, *body[n + 1 :])
    node = body[n]
    assert isinstance(node, Loop | Guard)
    new = replace(node, body=insert(node.body, rest, before, after))
    return (*body[:n], new, *body[n + 1 :])


def check_room(program: Program, position: Position, nest: Node | None = None) -> None:
    """ScheduleError unless `nest` (None: serial loops of copies) can stand directly under the loop at `position`."""
    beside = [n.var for n in children(program.body, position) if isinstance(n, Loop) and n.kind in BLOCK_KINDS]
    if beside:
        raise ScheduleError(f"only the block loop '{beside[0]}' may stand there. Inside it is possible")
    if nest is None:
        return
    around = loops_to(program.body, position)
    inner = [loop for _, loop in loops((nest,))]
    blocks = [loop.var for loop in inner if loop.kind in BLOCK_KINDS]
    if blocks:
        raise ScheduleError(f"the nest holds the block loop '{blocks[0]}', which must be outermost: move it first, then bind")
    for loop in inner:
        same = [x.var for x in around if x.kind == loop.kind and loop.kind in THREAD_KINDS]
        if same:
            raise ScheduleError(f"'{loop.var}' and '{same[0]}' around it would both be {loop.kind}: move it first, then bind")
    threads = [x.var for x in around if x.kind in THREAD_KINDS]
    if not threads:
        return
    if any(isinstance(s.action, Barrier | Commit | Wait) for s in sites((nest,))):
        raise ScheduleError(f"the nest synchronises, which a single thread of '{threads[0]}' cannot: move it first")
    owned = [b.name for b in program.buffers if b.memory == "shared" and b.owner in {loop.var for loop in inner}]
    if owned:
        raise ScheduleError(f"the nest owns the shared '{owned[0]}', which would then belong to a thread of '{threads[0]}'")


@dataclass(frozen=True)
class Addressing:
    """How a buffer turns logical into physical indices: per physical dimension the logical one (or none) and an offset."""

    dims: tuple[tuple[int | None, Aff], ...]

    def physical(self, logical: Sequence[Aff]) -> tuple[Aff, ...]:
        return tuple(offset if d is None else logical[d] + offset for d, offset in self.dims)


def addressing(found: Sequence[Use], fixed: Iterable[str]) -> Addressing:
    """Recovered from accesses that share it; `fixed` are the names an offset may use (loops at or above the owner, sizes)."""
    allowed = frozenset(fixed)
    dims: list[tuple[int | None, Aff]] = []
    last = -1
    rank, logical_rank = len(found[0].address.index), len(found[0].logical)
    for k in range(rank):
        choice: tuple[int | None, Aff] | None = None
        for d in range(last + 1, logical_rank):
            offsets = {u.address.index[k] - u.logical[d] for u in found}
            if len(offsets) == 1 and next(iter(offsets)).names <= allowed:
                choice = (d, next(iter(offsets)))
                last = d
                break
        if choice is None:
            same = {u.address.index[k] for u in found}
            if len(same) != 1 or not next(iter(same)).names <= allowed:
                name = found[0].address.buffer
                raise ScheduleError(f"the accesses of '{name}' have no common address rule here; do this earlier")
            choice = (None, next(iter(same)))
        dims.append(choice)
    return Addressing(tuple(dims))
