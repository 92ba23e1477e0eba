"""A cost for a person and as data. The terms and their text are the Cost's own (cost/): nothing is computed here."""

from __future__ import annotations

import json
from typing import Any

from tilec.cost.cost import Cost


def cost_text(cost: Cost) -> str:
    return cost.explain()


def cost_data(cost: Cost) -> dict[str, Any]:
    """The object that `Cost.to_json` writes: keys as in docs/cost.md."""
    return json.loads(cost.to_json())
