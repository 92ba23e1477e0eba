"""The schedules of every kernel that is shown, checked and compiled for GPUs: each by a recipe of the search, or by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tilec.schedule.schedule import Schedule, start
from tilec.search.recipes import derive
from tilec.workloads import get


@dataclass(frozen=True)
class Case:
    """kernel: of the library. how: the name of a recipe, or a function of a fresh schedule. odd: sizes with partial tiles, small
    enough to interpret; real: sizes of use. scalars: values for both."""

    name: str
    kernel: str
    how: str | Callable[[Schedule], Schedule]
    knobs: Mapping[str, int] = field(default_factory=dict)
    reassociate: tuple[str, ...] = ()
    odd: Mapping[str, int] = field(default_factory=dict)
    real: Mapping[str, int] = field(default_factory=dict)
    scalars: Mapping[str, float] = field(default_factory=dict)

    def schedule(self, knobs: Mapping[str, int] | None = None, **sizes: int) -> Schedule:
        """The schedule, at these tile sizes where given; sizes left out stay open."""
        s = start(get(self.kernel), sizes, self.reassociate or None)
        if not isinstance(self.how, str):
            return self.how(s)
        recipes = {r.name: r for r in derive(s.program)}
        return recipes[self.how].apply(s, knobs or self.knobs)


def implicit_gemm(s: Schedule) -> Schedule:
    """A convolution as one matrix product per filter position: filters × channels by channels × pixels of a row."""
    s = s.split("k", 64, into=("ko", "ki")).split("q", 64, into=("qo", "qi"))
    s = s.reorder("b", "ko", "p", "qo", "ki", "qi").split("c", 32, into=("co", "ci"))
    s = s.reorder("S1.r", "S1.s", "S1.co", "S1.ki", "S1.qi", "S1.ci").place("acc", "register")
    s = s.cache_read("X", at="co", memory="shared").cache_read("F", at="co", memory="shared")
    return s.bind("b", "block.z").bind("ko", "block.y").pipeline("co", stages=3)


_GEMM = {"BM": 64, "BN": 64, "BK": 32}
_TILE = {"BM": 32, "BN": 64}
_ODD = {"M": 70, "N": 90, "K": 75}
_REAL = {"M": 1024, "N": 12288, "K": 4096}
_REGISTER = "accumulator register; order i outside; stages 3"

CASES: tuple[Case, ...] = (
    Case("gemm", "gemm", f"C; {_REGISTER}", _GEMM, ("acc",), _ODD, _REAL),
    Case("gemm_silu", "gemm_silu", f"C+Y; {_REGISTER}", _GEMM, ("acc",), _ODD, _REAL),
    Case("gemm_silu_separate", "gemm_silu", f"C | Y; {_REGISTER}", _GEMM, ("acc",), _ODD, _REAL),
    Case("gemm_silu_quantize", "gemm_silu_quantize", f"C+T+Q; {_REGISTER}", _GEMM, ("acc",), _ODD, _REAL, {"scale": 0.37}),
    Case("swiglu", "swiglu", f"G+U+Y; {_REGISTER}; sums together", _GEMM, ("g", "u"), _ODD, _REAL),
    Case("swiglu_in_turn", "swiglu", f"G+U+Y; {_REGISTER}; sums in turn", _GEMM, ("g", "u"), _ODD, _REAL),
    Case("act_chain", "act_chain", "T+Z+Q", _TILE, (), {"M": 33, "N": 70}, {"M": 4096, "N": 12288}, {"scale": 0.37}),
    Case("act_chain_separate", "act_chain", "T | Z | Q", _TILE, (), {"M": 33, "N": 70}, {"M": 4096, "N": 12288}, {"scale": 0.37}),
    Case("act_chain_i8", "act_chain_i8", "T+Z+Q", _TILE, (), {"M": 33, "N": 70}, {"M": 4096, "N": 12288}, {"scale": 0.037}),
    Case(
        "rowquant_gemm_stored",
        "rowquant_gemm",
        f"S+Q | Y; quantised operand stored; {_REGISTER}; inputs shared",
        _GEMM,
        ("acc",),
        {"M": 37, "N": 40, "K": 75},
        {"M": 4096, "N": 4096, "K": 4096},
    ),
    Case(
        "rowquant_gemm_fused",
        "rowquant_gemm",
        f"S | Q+Y; quantised operand recomputed; {_REGISTER}",
        _GEMM,
        ("acc",),
        {"M": 37, "N": 40, "K": 75},
        {"M": 4096, "N": 4096, "K": 4096},
    ),
    Case("rmsnorm", "rmsnorm", "Y; inputs shared", {}, ("ss",), {"M": 5, "K": 300}, {"M": 4096, "K": 4096}, {"eps": 1e-5}),
    Case("softmax", "softmax", "Y; inputs shared", {}, ("total",), {"M": 5, "N": 300}, {"M": 4096, "N": 4096}),
    Case("softmax_direct", "softmax", "Y; inputs direct", {}, ("total",), {"M": 5, "N": 300}, {"M": 4096, "N": 4096}),
    Case("transpose", "transpose", "B; inputs shared", {"BM": 64, "BN": 32}, (), {"M": 37, "N": 70}, {"M": 4096, "N": 8192}),
    Case(
        "layernorm",
        "layernorm",
        "Y; inputs shared",
        {},
        ("total", "ss"),
        {"M": 5, "K": 300},
        {"M": 4096, "K": 4096},
        {"eps": 1e-5},
    ),
    Case(
        "conv2d",
        "conv2d",
        implicit_gemm,
        {},
        ("acc",),
        {"B": 2, "K": 70, "C": 35, "P": 2, "Q": 66, "R": 3, "S": 2},
        {"B": 8, "K": 256, "C": 128, "P": 54, "Q": 54, "R": 3, "S": 3},
    ),
)


def case(name: str) -> Case:
    """By name; KeyError for another."""
    return {c.name: c for c in CASES}[name]
