"""A schedule that would change the result is refused, with two statement instances that show it, and what would be legal."""

import tilec
from tilec import f32, sizes

N = sizes("N")


@tilec.kernel
def wavefront(a: f32[N + 1, N + 1]):
    for i in range(N):
        for j in range(N):
            a[i + 1, j] = a[i, j + 1] + 1


s = wavefront.schedule()
print(s, end="\n\n")

try:
    s.reorder("j", "i")
except tilec.errors.LegalityError as error:
    print(error.render())
    witness = error.witness
    print(f"\nas data: {witness.kind} from {witness.source} to {witness.sink} through {witness.element} at {witness.sizes}\n")

print("after the skew:\n")
print(s.skew("j", by="i").reorder("j", "i"))
