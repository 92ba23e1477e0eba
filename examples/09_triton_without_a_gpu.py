"""GEMM+SiLU as a Triton kernel, and what the compiler will need for it on three machines, with no GPU and no Triton here."""

import tilec
from tilec.codegen.triton import emit, options_for
from tilec.search.gpu import misfit, predicted
from tilec.targets import load


def tiled(s, rows, columns, depth, stages):
    s = s.compute_inline("C")
    s = s.split("Y.i", rows, into=("io", "ii")).split("Y.j", columns, into=("jo", "ji")).reorder("io", "jo", "ii", "ji")
    s = s.compute_at("acc", "jo").split("acc.k", depth, into=("ko", "ki")).reorder("ko", "acc.i", "acc.j", "ki")
    s = s.cache_read("A", at="ko", memory="shared").cache_read("W", at="ko", memory="shared").place("acc", "register")
    return s.pipeline("ko", stages=stages).bind("io", "block.y").bind("jo", "block.x")


fresh = tilec.workload("gemm_silu").schedule(reassociate="acc")  # tl.dot promises no order inside a tile
s = tiled(fresh, 64, 64, 32, stages=3)
text = s.emit("triton", target="h100-sxm")
print(text[text.index("@triton.jit\ndef gemm_silu_0") : text.index("def _check")].rstrip())

print("\nwithout the permission:")
try:
    tiled(tilec.workload("gemm_silu").schedule(), 64, 64, 32, stages=3).emit("triton")
except tilec.errors.ScheduleError as error:
    print(error.render())

print("\nper block, by the rules of docs/gpu.md:")
for tile in ((64, 64, 32), (64, 128, 64), (128, 128, 64)):
    s = tiled(fresh, *tile, stages=4)
    for name in ("rtx-pro-6000", "h100-sxm", "b200"):
        machine = load(name)
        made = emit(s.program, options_for(machine, 8))
        (needs,) = predicted(made, machine, {})
        why = misfit(needs, machine, 8) or "fits"
        print(f"{'×'.join(map(str, tile))} on {name}: {needs.shared:,} B shared, {needs.registers} registers; {why}")
