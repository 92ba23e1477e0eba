"""The names a kernel is written with: dtypes, sizes, elementary functions. Plain markers; the front ends give them meaning."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass

from tilec.errors import LanguageError
from tilec.ir.affine import Aff, AffLike, Constraint
from tilec.lang.affine import Reader


@dataclass(frozen=True)
class Type:
    """A dtype: `bf16[M, K]` annotates an array, `bf16` a scalar, `bf16(x)` and `bf16(x, "rule")` are casts in a kernel."""

    name: str

    def __getitem__(self, shape: object) -> ArrayType:
        return ArrayType(self.name, shape if isinstance(shape, tuple) else (shape,))

    def __call__(self, *args: object) -> object:
        raise LanguageError(f"{self.name}(x) is a cast inside a kernel; outside one, convert with NumPy and ml_dtypes.")


@dataclass(frozen=True)
class ArrayType:
    """What `bf16[M, K]` gives as an annotation; the front end reads the shape from the source."""

    dtype: str
    shape: tuple[object, ...]


@dataclass(frozen=True)
class Elementary:
    """A function of one value, usable inside kernels: exp, silu, … of ir/functions.py, and sqrt."""

    name: str

    def __call__(self, *args: object) -> object:
        raise LanguageError(f"{self.name}(x) is a function inside kernels only; outside one, use NumPy.")


@dataclass(frozen=True)
class Size:
    """A symbolic extent, at least 1; `where` states more about the sizes declared `together` with it, in their order."""

    name: str
    where: tuple[Constraint, ...] = ()
    together: tuple[str, ...] = ()

    @property
    def aff(self) -> Aff:
        return Aff.of(self.name)

    def __add__(self, other: Size | AffLike) -> Aff:
        return self.aff + affine_of(other)

    def __sub__(self, other: Size | AffLike) -> Aff:
        return self.aff - affine_of(other)

    def __rsub__(self, other: Size | AffLike) -> Aff:
        return affine_of(other) - self.aff

    def __mul__(self, factor: int) -> Aff:
        return self.aff * factor

    def __neg__(self) -> Aff:
        return -self.aff

    def __floordiv__(self, den: int) -> Aff:
        return self.aff // den

    def __mod__(self, den: int) -> Aff:
        return self.aff % den

    __radd__ = __add__
    __rmul__ = __mul__

    def __str__(self) -> str:
        return self.name


def affine_of(value: Size | AffLike) -> Aff:
    """A size, a name, an integer or an affine expression as one; LanguageError for a value of the kernel."""
    if isinstance(value, Size):
        return value.aff
    if not isinstance(value, Aff | int | str):
        raise LanguageError(f"{type(value).__name__}: subscripts, bounds and extents are loop variables, sizes and integers.")
    return Aff.of(value)


def sizes(names: str, where: str | Iterable[str] = ()) -> Size | tuple[Size, ...]:
    """Declare symbolic sizes: `M, N = sizes("M N")`, `M = sizes("M", where="M % 64 == 0")`.

    names: identifiers separated by spaces or commas. where: one affine condition, or several; `and` joins them.
    One name gives a Size, several a tuple of them. Raises LanguageError for a bad name or condition.
    """
    if not isinstance(names, str):
        raise LanguageError(f"sizes({names!r}): expected names in one string, as in sizes('M N K').")
    found = names.replace(",", " ").split()
    for name in found:
        if not re.fullmatch(r"[A-Za-z_]\w*", name) or "__" in name:
            raise LanguageError(f"sizes({names!r}): {name!r} is no name for a size; use letters, digits and single underscores.")
    if not found or len(set(found)) != len(found):
        raise LanguageError(f"sizes({names!r}): expected one or more different names, as in sizes('M N K').")
    conditions = [c for text in ([where] if isinstance(where, str) else where) for c in parse_where(text, found)]
    made = [Size(name, tuple(conditions), tuple(found)) for name in found]
    return tuple(made) if len(made) > 1 else made[0]


def parse_where(text: str, names: Iterable[str]) -> list[Constraint]:
    """The conjunction `text` over `names` as constraints."""
    known = tuple(names)
    try:
        node = ast.parse(text, mode="eval").body
    except SyntaxError:
        raise LanguageError(f"where={text!r}: not a condition; write for example where='M % 64 == 0 and N >= 3'.") from None

    def resolve(name: ast.Name) -> Aff:
        if name.id in known:
            return Aff.of(name.id)
        raise LanguageError(f"where={text!r}: {name.id!r} is not among the sizes declared here: {', '.join(known)}.")

    try:
        return Reader(resolve).condition(node)
    except LanguageError as e:
        raise e if str(e).startswith("where=") else LanguageError(f"where={text!r}: {e}") from None


f64 = Type("f64")
f32 = Type("f32")
f16 = Type("f16")
bf16 = Type("bf16")
f8e4m3 = Type("f8e4m3")
f8e5m2 = Type("f8e5m2")
i32 = Type("i32")
i8 = Type("i8")
