"""Nests that one machine instruction runs: the intrinsic where the compiler has it, plain vectors with its values elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf, prod

from tilec.codegen import c_arithmetic, c_lanes, c_memory
from tilec.codegen.c_groups import Groups, Run, weave
from tilec.codegen.c_helpers import ELEMENT, REGISTERS, Helpers, under
from tilec.codegen.c_lines import INDENT, Cell
from tilec.codegen.c_place import NotVector, Place
from tilec.codegen.c_scope import bounds
from tilec.ir.affine import Aff
from tilec.ir.instructions import BIASED, INSTRUCTIONS, Instruction
from tilec.ir.layouts import padded
from tilec.ir.program import Address, Buffer, Leaf, Loop, Prefetch
from tilec.ir.tree import loops, sites
from tilec.lower.nests import written_buffers

MOST_SUMS = 256  # vectors of sums kept on the stack


@dataclass
class Around:
    """A C loop that dot products stand in, and the line before it where something can still be put."""

    loop: Loop
    header: str
    place: Place
    line: int
    bounds: frozenset[str]  # variables that its bounds depend on
    most: int  # its variable is below; 0: no constant says so
    sums: dict[tuple[str, str], str] = field(default_factory=dict)  # of (loop, vector): the variable


@dataclass
class Owed:
    """What the dot products of a loop add too much to an accumulator: 128 times the sum of b."""

    target: Cell
    place: Place
    operand: Buffer  # of b
    index: tuple[Aff, ...]  # its indices there
    group: Loop  # over the elements of a group
    moves: frozenset[str]  # what the indices depend on
    loaded: str  # a vector of b


@dataclass
class Instructed(Groups):
    """Dot products on top of the copies; an instruction of depth one is the fused multiply-add that `contract` gives anyway."""

    around: list[Around] = field(default_factory=list)
    owed: dict[str, Owed] | None = None  # by accumulator, while a loop runs behind which it is settled

    def runs_dots(self, node: Loop) -> bool:
        return node.instruction is not None and INSTRUCTIONS[node.instruction].depth > 1

    def dots(self, node: Loop, place: Place) -> None:
        """acc[lane] += a[0]·b[lane, 0] + a[1]·b[lane, 1] + …, at the lanes of this place."""
        wanted = INSTRUCTIONS[node.instruction or ""]
        assert place.lanes is not None
        lanes = place.lanes.lanes
        inner = node.body[0]
        assert isinstance(inner, Loop) and isinstance(inner.body[0], Leaf)
        leaf = inner.body[0]
        runs = [(r, self.groups_at(r, inner, wanted.depth, place)) for r in leaf.reads if isinstance(r, Address)]
        same = [(a, r) for a, r in runs if r is not None and r.step == 0]
        moving = [(a, r) for a, r in runs if r is not None and r.step != 0]
        target = self.cell(leaf.target, place.fixed(inner, inner.lower[0]))
        if lanes == 1 or len(same) != 1 or len(moving) != 1 or not target.wide:
            raise NotVector("its operands do not lie as the instruction reads them")
        (a, group), (read, run) = (same[0][0].buffer, same[0][1]), moving[0]
        b = self.program.buffer[read.buffer]
        cut = place.lanes.count if b.role == "param" else None
        if cut is not None and run.places is not None:
            raise NotVector("a vector of groups would reach behind the end of its array")
        right, placed = self._moving(wanted, b.name, run, cut, place)
        left = self._same(wanted, a, group, placed, place)
        old, _ = self.raw(target, place)
        name = product(self.helpers, wanted, lanes)
        text, note = f"{name}({old}, {left}, {right})", f"  // {leaf.statement}, {wanted.name}"
        if wanted.name == BIASED and self.owed is not None and not target.at:
            index = tuple(place.aff(e) for e in self.cells.index(read, place.path))
            moves = frozenset[str]().union(*(e.names for e in index))
            loaded = next(text for text, known in self.loads.items() if known == right)
            self.owed[target.name] = Owed(target, place, b, index, inner, moves, loaded)
        elif wanted.name == BIASED:
            kind = self.helpers.type("i32", lanes)
            text += f" - {self.named(f'{name}(({kind}){{0}}, {self._bias(lanes)}, {right})', kind, 'bias', place)}"
        self.put(target, text, place, note)

    def _bias(self, lanes: int) -> str:
        return f"{c_lanes.splat(self.helpers, 'i32', lanes)}((i32)0x80808080)"

    def opened(self, node: Loop, header: str, place: Place) -> dict[str, Owed] | None:
        """Before a C loop is written: room for sums in front of it, and a list of what it owes where it only adds products."""
        kept = self.owed
        self.owed = None
        found = list(sites(node.body))
        biased = [s for s in found if any(x.instruction == BIASED for x in s.loops)]
        if biased:
            ends = [*place.affs(node.lower), *place.affs(node.upper)]
            names = frozenset[str]().union(*(e.names for e in ends)) - {*self.program.sizes}
            below = min(place.most(e) for e in place.affs(node.upper)) if node.lower == (Aff(0),) else 0
            self.around.append(Around(node, header, place, len(self.lines), names, int(below) if below < MOST_SUMS else 0))
            self.lines.append("")
            if node.kind == "serial" and len(biased) == sum(not isinstance(s.action, Prefetch) for s in found):
                self.owed = {}
        return kept

    def closed(self, node: Loop, kept: dict[str, Owed] | None) -> None:
        """Behind a C loop: accumulators are settled. The sums of b are made in front of the outermost loop in whose iterations
        they are the same; where b moves with loops inside that one, for all of their iterations."""
        owed, self.owed = self.owed or {}, kept
        if not self.around or self.around[-1].loop is not node:
            return
        mine = self.around[-1]
        for o in owed.values():
            at, along = mine, ()
            passed: tuple[Around, ...] = ()
            inner = {mine.loop.var}
            for outer in reversed(self.around[:-1]):
                if not self._keeps(o, outer):
                    break
                inner.add(outer.loop.var)
                if outer.loop.var in o.moves | mine.bounds:
                    passed = (outer, *passed)
                elif (
                    _copies(passed) <= MOST_SUMS and not any(x.bounds & inner for x in passed) and _within(o, mine, outer, passed)
                ):
                    at, along = outer, passed
            old, _ = self.raw(o.target, o.place)
            sums = self._sums(o, mine, at, along)
            self.put(o.target, f"{old} - {sums}", replace(o.place, depth=mine.place.depth), "  // the bias")
        self.around.pop()
        if not self.lines[mine.line]:
            del self.lines[mine.line]

    def _keeps(self, o: Owed, outer: Around) -> bool:
        """Does b hold the same elements during all of an outer loop?"""
        inside = {x.var for _, x in loops((outer.loop,))}
        b, serial = o.operand, outer.loop.kind in ("serial", "unrolled")
        return serial and b.owner not in inside and b.name not in written_buffers(outer.loop)

    def _sums(self, o: Owed, mine: Around, at: Around, along: tuple[Around, ...]) -> str:
        """128 times the sum over my iterations of a vector of b, made in front of a loop; an array over the loops `along`."""
        index = "".join(f"[{self.names[x.loop.var]}]" for x in along)
        known = at.sums.get((mine.header, o.loaded))
        if known is None:
            lanes, step = o.place.width, INDENT * at.place.depth
            known = at.sums[mine.header, o.loaded] = self.new("bias")
            name, kind = f"{known}{index}", self.helpers.type("i32", lanes)
            call = f"{product(self.helpers, INSTRUCTIONS[BIASED], lanes)}({name}, {self._bias(lanes)}, {o.loaded});"
            made = [f"{name} = ({kind}){{0}};", mine.header, f"{INDENT}{name} = {call}", "}"]
            for x in reversed(along):
                made = [x.header, *(INDENT + line for line in made), "}"]
            shape = "".join(f"[{x.most}]" for x in along)
            made = [f"{kind} {known}{shape};", *made]
            self.lines[at.line] = "\n".join([*filter(None, [self.lines[at.line]]), *(step + line for line in made)])
        return f"{known}{index}"

    def _moving(self, wanted: Instruction, b: str, run: Run, cut: str | None, place: Place) -> tuple[str, tuple[int, ...]]:
        """The groups of all lanes, and the position of each element of the loop in them."""
        h, lanes = self.helpers, place.width
        short = ELEMENT[wanted.operand]
        stem, kind = self.names[b], h.type("i32", lanes)
        if run.places is not None:
            text = f"{c_memory.load(h, short, wanted.depth * lanes)}({run.pointers[0]})"
            if wanted.depth == 2 and short == "i8":
                text = f"__builtin_convertvector({text}, {h.type('i16', 2 * lanes)})"
            return self.named(f"({kind}){text}", kind, stem, place), run.places
        rows = [c_memory.loaded(h, short, lanes, p, cut) for p in run.pointers]
        if wanted.depth == 2 and short == "i8":
            rows = [f"__builtin_convertvector({r}, {h.type('i16', lanes)})" for r in rows]
            short = "i16"
        placed = [rows[wanted.order.index(n)] for n in range(wanted.depth)]
        return self.named(f"({kind}){weave(h, short, wanted.depth, lanes)}({', '.join(placed)})", kind, stem, place), wanted.order

    def _same(self, wanted: Instruction, a: str, group: Run, placed: tuple[int, ...], place: Place) -> str:
        """The group of a in every lane, its elements at the positions of b's."""
        h, lanes = self.helpers, place.width
        turned = group.places != placed
        if turned and wanted.depth != 2:
            raise NotVector("its operands run against each other")
        text = f"{spread(h, wanted, lanes, turned)}({group.pointers[0]})"
        return self.named(text, h.type("i32", lanes), self.names[a], place)


def _copies(passed: tuple[Around, ...]) -> float:
    """The iterations of loops that b moves with."""
    return prod(x.most or inf for x in passed)


def _within(o: Owed, mine: Around, outer: Around, passed: tuple[Around, ...]) -> bool:
    """Are all cells there that a sum of b reads in front of `outer`, also those that a condition inside keeps from being read? Of
    a copy, which is allocated as a whole; not of an argument, behind whose end may be nothing."""
    b = o.operand
    if b.role == "param" or len(o.index) != len(b.shape):
        return False
    lower, upper = o.place.affs(o.group.lower), o.place.affs(o.group.upper)
    ranges = {**o.place.running(o.group, lower, upper).ranges, **outer.place.ranges}
    ranges |= {x.loop.var: (0, x.most - 1) for x in passed}
    for e, extent in zip(o.index, padded(b.layout, b.shape), strict=True):
        low, high = bounds(e, ranges)
        if e.names - {mine.loop.var, o.group.var} and not (extent.is_const and low >= 0 and high < extent.const):
            return False
    return True


def spread(h: Helpers, wanted: Instruction, lanes: int, turned: bool) -> str:
    """The neighbours at p as one 32-bit group, in every lane; a pair with its halves exchanged."""
    short, t, whole = ELEMENT[wanted.operand], h.type("i32", lanes), c_lanes.splat(h, "i32", lanes)
    if short == "i8" and wanted.depth == 2:
        low, high = ("p[1]", "p[0]") if turned else ("p[0]", "p[1]")
        body = f"return {whole}((i32)((u32)(u16)(i16){low} | (u32)(i32){high} << 16));"
    elif turned:  # before it is spread: a vector's shift would take its turn among the products
        body = f"u32 v;\nmemcpy(&v, p, sizeof v);\nreturn {whole}((i32)(v << 16 | v >> 16));"
    else:
        body = f"return {whole}(v);"
        if wanted.name == BIASED:  # by the vector unit: as an operator it would be done before the element is spread
            r = REGISTERS[4 * lanes]
            fast = f"return ({t}){r.prefix}_xor_si{r.bits}(({r.whole}){whole}(v), {r.prefix}_set1_epi8(-128));"
            body = under(r.macro, fast, f"return {whole}(v) ^ {whole}((i32)0x80808080);")
        body = f"i32 v;\nmemcpy(&v, p, sizeof v);\n{body}"
    name = f"{'turned' if turned else 'biased' if wanted.name == BIASED else 'group'}_{wanted.depth}{short}_{t}"
    return h.define(name, t, f"const {short} *p", body)


def product(h: Helpers, wanted: Instruction, lanes: int) -> str:
    """The helper that adds the products of each lane to the accumulator, in the instruction's order."""
    macros = f"__AVX512VL__ {_macro(wanted)}" if lanes < 16 else _macro(wanted)
    r, i = REGISTERS[4 * lanes], h.type("i32", lanes)
    t = h.type("f32", lanes) if wanted.result == "f32" else i
    if wanted.name == "vdpbf16ps":
        fast = f"return ({t}){r.prefix}_dpbf16_ps(({r.floats})acc, ({r.floats}bh)a, ({r.floats}bh)b);"
        fma = c_arithmetic.fma(h, "f32", lanes)
        plain = (
            f"acc = {fma}(({t})(a & -65536), ({t})(b & -65536), acc);  // the odd element first\n"
            f"return {fma}(({t})(a << 16), ({t})(b << 16), acc);"
        )
    elif wanted.name == BIASED:
        fast = _accumulating(BIASED, f"{r.prefix}_dpbusd_epi32", t, r.whole)
        plain = "return acc + " + " + ".join(f"(a >> {8 * n} & 255) * (b << {24 - 8 * n} >> 24)" for n in range(4)) + ";"
    else:
        if wanted.name == "vpdpwssd":
            fast = _accumulating(wanted.name, f"{r.prefix}_dpwssd_epi32", t, r.whole)
        else:
            fast = f"return acc + ({t}){r.prefix}_madd_epi16(({r.whole})a, ({r.whole})b);"
            macros = "__AVX512BW__" if lanes == 16 else r.macro
        plain = "return acc + (((a << 16) >> 16) * ((b << 16) >> 16) + (a >> 16) * (b >> 16));"
    return h.define(f"{wanted.name}_{t}", t, f"{t} acc, {i} a, {i} b", under(macros, fast, plain))


def _accumulating(mnemonic: str, intrinsic: str, t: str, integer: str) -> str:
    """GCC's intrinsics of VNNI copy each accumulator to another register and back, which spills a tile of them."""
    return (
        f'#if defined(__GNUC__) && !defined(__clang__)\n__asm__("{mnemonic} %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));\n'
        f"return acc;\n#else\nreturn ({t}){intrinsic}(({integer})acc, ({integer})a, ({integer})b);\n#endif"
    )


def _macro(wanted: Instruction) -> str:
    return f"__{wanted.needs.upper()}__".replace("AVX512_", "AVX512")
