"""Actions as C lines: what a leaf computes, copies, identities, merges; for one iteration or along lanes."""

from __future__ import annotations

from tilec.codegen import c_convert, c_lanes, c_memory, c_rounding
from tilec.codegen.c_helpers import BYTES, ELEMENT, HOLDS, number
from tilec.codegen.c_lines import Cell, Lines
from tilec.codegen.c_place import NotVector, Place
from tilec.codegen.c_scope import LANE, simplified
from tilec.codegen.c_values import Value, Values
from tilec.ir.affine import Aff
from tilec.ir.dtypes import DTYPES, encode, promote
from tilec.ir.evaluate import neutral
from tilec.ir.program import Address, Copy, Identity, Leaf, Merge, Prefetch, Read
from tilec.lower.nests import target_of


class Actions(Lines):
    """Values and stores on top of the lines."""

    def values(self, place: Place) -> Values:
        return Values(
            self.helpers,
            place.width,
            lambda r: self.load(r, place),
            lambda e: self.index(e, place),
            lambda n: self.names[n],
            self.program.contract,
        )

    def load(self, read: Read, place: Place) -> Value:
        if not isinstance(read, Address):
            statement = self.program.statement[read.statement]
            dtype = self.program.source.buffer[statement.target.buffer].dtype
            values = self.values(place)
            env = dict(zip(statement.loops, read.instance, strict=True))
            v = values.value(statement.value, env, read.reads)
            if v.dtype == "bool":
                v = values.convert(v, "i32")
            return values.rounded(v, dtype)
        cell = self.cell(read, place)
        value = self._value(cell, place)
        if not cell.at or not (place.lanes or place.unrolled):
            return value
        if place.lanes is not None and not value.wide and not DTYPES[cell.buffer.dtype].direct:
            value = self._spread(cell, place.width)
        kind = self.helpers.type(HOLDS[value.dtype], place.width if value.wide else 1)
        return Value(self.named(value.text, kind, cell.name, place), value.dtype, value.wide)

    def _value(self, cell: Cell, place: Place) -> Value:
        """The arithmetic value of an element, or of the elements of all lanes."""
        text, wide = self.raw(cell, place)
        back = c_convert.decode(self.helpers, cell.buffer.dtype, place.width if wide else 1)
        return Value(f"{back}({text})" if back else text, DTYPES[cell.buffer.dtype].arithmetic, wide)

    def _spread(self, cell: Cell, n: int) -> Value:
        """One narrow element as an arithmetic value in every lane: spread first, one conversion of a vector."""
        h, dtype = self.helpers, cell.buffer.dtype
        if dtype == "bf16":  # twice in each lane, then its lower copy shifted out
            t, u = h.type("f32", n), h.type("u32", n)
            body = f"return ({t})(({u}){c_lanes.splat(h, 'u16', 2 * n)}(x) << 16);"
            text = f"{h.define(f'{t}_spread_bf16', t, 'u16 x', body)}({cell.element})"
        else:
            text = f"{c_convert.decode(h, dtype, n)}({c_lanes.splat(h, ELEMENT[dtype], n)}({cell.element}))"
        return Value(text, DTYPES[dtype].arithmetic, True)

    def index(self, aff: Aff, place: Place) -> Value:
        e, scope = place.aff(aff), self.scope(place)
        if LANE not in e.names:
            return Value(f"(i32)({scope.aff(e)})", "i32", False, 8)
        n = place.width
        kind = self.helpers.type("i32", n)
        items = [f"(i32)({scope.aff(simplified(e.subs({LANE: lane}), place.ranges))})" for lane in range(n)]
        return Value(f"({kind}){{{', '.join(items)}}}", "i32", True)

    # actions ---------------------------------------------------------------------------------------------------------

    def leaf(self, leaf: Leaf, place: Place) -> None:
        statement = self.program.statement[leaf.statement]
        values = self.values(place)
        env = dict(zip(statement.loops, leaf.instance, strict=True))
        target = self.cell(leaf.target, place)
        dtype = target.buffer.dtype
        if statement.op == "=":
            v = values.value(statement.value, env, leaf.reads)
        else:
            arithmetic = promote(DTYPES[dtype].arithmetic, statement.value.dtype)
            old = values.convert(self._value(target, place), arithmetic)
            v = self._updated(statement.op, arithmetic, old, statement.value, env, leaf.reads, values)
        self.write(target, values, v, place, f"  // {statement.name}", leaf.streaming)

    def _updated(self, op, arithmetic, old, value, env, reads, values: Values) -> Value:
        product = getattr(value, "op", None) == "*" and value.dtype == arithmetic and arithmetic in ("f32", "f64")
        if op == "+=" and self.program.contract and product:
            a, b = (values.convert(values.value(x, env, reads), arithmetic) for x in (value.a, value.b))
            return values.fma(arithmetic, a, b, old)
        new = values.convert(values.value(value, env, reads), arithmetic)
        return values.binary(op[:-1], arithmetic, old, new)

    def write(self, cell: Cell, values: Values, v: Value, place: Place, note: str, streaming: bool = False) -> None:
        """Round to the buffer's format and store."""
        if cell.wide and not v.wide:
            v = Value(values.whole(v), v.dtype, True)
        _one_writer(cell, v.wide, place)
        dtype = cell.buffer.dtype
        packs = self.packs_pieces and v.dtype == "f32" and cell.wide and not (cell.holds_lanes or cell.gathers)
        if packs and c_convert.paired(self.helpers, dtype, place.width):
            self.put(cell, v.text, place, note, streaming, "f32")
        elif packs and (whole := c_rounding.unpacked(self.helpers, dtype, place.width)):
            self.put(cell, f"{whole}({v.text})", place, note, streaming, "i32" if dtype == "i8" else "u32")
        else:
            self.put(cell, values.stored(v, dtype), place, note, streaming)

    def put(self, cell: Cell, raw: str, place: Place, note: str, streaming: bool = False, short: str = "") -> None:
        """Store elements. short: the C type they still have in `raw`."""
        short, n = short or ELEMENT[cell.buffer.dtype], place.width
        lanes = place.lanes
        if cell.at:
            self.loads = {t: v for t, v in self.loads.items() if cell.name not in t}
        if not cell.wide:
            self.line(place, f"{cell.element} = {raw};{note}")
            return
        assert lanes is not None
        if cell.holds_lanes:
            v = (self.storage.variables or {}).get(cell.buffer.name)
            if lanes.count is not None and (lanes.narrowed or (v is not None and v.masked)):
                raw = self._kept(short, n, lanes.count, raw, cell.element)
            self.line(place, f"{cell.element} = {raw};{note}")
            return
        if cell.gathers:
            kind, name = self.helpers.type(short, n), self.new("lanes")
            self.line(place, f"const {kind} {name} = {raw};{note}")
            for lane, at in enumerate(cell.at):
                when = f"if ({lanes.count} > {lane}) " if lanes.count is not None else ""
                self.line(place, f"{when}{cell.name}[{at}] = {name}[{lane}];")
            return
        streaming = streaming and lanes.count is None
        if streaming:
            c_memory.fence(self.helpers)
        if self.joined is not None and lanes.count is None:
            piece = self.new(cell.name)
            self.line(place, f"const {self.helpers.type(short, n)} {piece} = {raw};{note}")
            self.joined.append((cell.pointer, piece, short))
        elif streaming:
            self.line(place, f"{c_memory.stream(self.helpers, short, n)}({cell.pointer}, {raw});{note}")
        else:
            self.line(place, c_memory.stored(self.helpers, short, n, cell.pointer, raw, lanes.count) + note)

    def store_joined(self, to: str, lanes: int, streaming: bool) -> list[str]:
        """The line that stores the collected pieces, one behind the other in memory, at once; none without pieces."""
        pieces, self.joined = self.joined or [], None
        if not pieces:
            return []
        h, short = self.helpers, pieces[0][2]
        values = [v for _, v, _ in pieces]
        if short == "f32" and to == "u16":
            values, lanes = [f"{c_convert.paired(h, 'bf16', lanes)}({', '.join(values)})"], 2 * lanes
        elif short != to:
            values, lanes = [f"{c_lanes.narrow(h, to, short, lanes)}({', '.join(values)})"], lanes * len(values)
        while len(values) > 1:
            join = c_lanes.join(h, to, lanes)
            values = [f"{join}({a}, {b})" for a, b in zip(values[::2], values[1::2], strict=True)]
            lanes *= 2
        put = c_memory.stream(h, to, lanes) if streaming else c_memory.store(h, to, lanes)
        return [f"{put}({pieces[0][0]}, {values[0]});"]

    def _kept(self, short: str, n: int, count: str, raw: str, old: str) -> str:
        """Active lanes of `raw`, the others as they were."""
        mask = f"{c_memory.part_mask(self.helpers, n)}({count})"
        if BYTES[short] != 4:
            kind = self.helpers.type(f"i{8 * BYTES[short]}", n)
            mask = f"__builtin_convertvector({mask}, {kind})"
        return f"{c_lanes.select(self.helpers, short, n)}({mask}, {raw}, {old})"

    def prefetch(self, action: Prefetch, place: Place) -> None:
        """A hint; of a vector, for its first lane."""
        a = action.address
        b = self.program.buffer[a.buffer]
        index = [simplified(place.aff(e).subs({LANE: 0}), place.ranges) for e in a.index]
        flat = self._flat(self.plan(b, index, place), self.scope(place))
        self.line(place, f"__builtin_prefetch({self.names[b.name]} + {flat}, {int(action.write)}, {4 - action.level});")

    def move(self, action: Copy | Identity | Merge, place: Place) -> None:
        target = self.cell(target_of(action), place)
        values, dtype = self.values(place), target.buffer.dtype
        match action:
            case Copy():
                source = self.cell(action.src, place)
                if source.buffer.dtype != dtype:
                    v = self.load(action.src, place)
                    self.write(target, values, v, place, "  // copy", action.streaming)
                    return
                text, wide = self.raw(source, place)
                _one_writer(target, wide, place)
                if target.wide and not wide:
                    text = f"{c_lanes.splat(self.helpers, ELEMENT[dtype], place.width)}({text})"
                self.put(target, text, place, "  // copy", action.streaming)
            case Identity():
                value = encode(dtype, neutral(action.op, dtype)).item()
                short = ELEMENT[dtype]
                text = str(value) if short in ("u8", "u16", "i8") else number(value, short)
                _one_writer(target, False, place)
                if target.wide:
                    text = f"{c_lanes.splat(self.helpers, short, place.width)}({text})"
                self.put(target, text, place, f"  // identity of {action.op}")
            case Merge():
                source = self.program.buffer[action.src.buffer]
                arithmetic = promote(DTYPES[dtype].arithmetic, DTYPES[source.dtype].arithmetic)
                old = values.convert(self._value(target, place), arithmetic)
                new = values.convert(self.load(action.src, place), arithmetic)
                v = values.binary(action.op.rstrip("="), arithmetic, old, new)
                self.write(target, values, v, place, "  // merge")


def _one_writer(cell: Cell, wide: bool, place: Place) -> None:
    """NotVector where all lanes, or the lanes of a wide value, would write the same cell."""
    if not cell.wide and (wide or place.width > 1):
        raise NotVector(f"all lanes write one cell of {cell.buffer.name}")
