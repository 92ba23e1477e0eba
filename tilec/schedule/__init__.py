"""How a program is rewritten. Importing the package registers every primitive; the modules of the families stand here once."""

from __future__ import annotations

from tilec.schedule import (
    loops,
    loops_affine,
    loops_order,
    mapping,
    placement,
    placement_inline,
    reduction,
    storage,
    storage_cache,
)

FAMILIES = (loops, loops_affine, loops_order, reduction, placement, placement_inline, storage, storage_cache, mapping)
