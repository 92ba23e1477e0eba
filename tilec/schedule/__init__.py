"""How a program is rewritten. Importing the package registers every primitive; the modules of the families stand here once."""

from __future__ import annotations

from tilec.schedule import (
    cpu_hints,
    cpu_structure,
    instruction,
    loops,
    loops_affine,
    loops_order,
    mapping,
    pipeline,
    placement,
    placement_inline,
    placement_root,
    reduction,
    storage,
    storage_cache,
    storage_layout,
)

FAMILIES = (
    loops,
    loops_affine,
    loops_order,
    reduction,
    placement,
    placement_inline,
    placement_root,
    storage,
    storage_cache,
    storage_layout,
    pipeline,
    mapping,
    cpu_hints,
    cpu_structure,
    instruction,
)
