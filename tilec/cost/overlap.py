"""What several customers of one server take: resident blocks on an SM's units, or warps that wait for their loads.

Each customer works s on the shared unit, then waits L for something that others do not delay. One alone takes s + L; very many
take n·s. In between the machine-repairman model holds (a closed queueing network of one server and one delay); with the
mean-value estimate of Schweitzer its cycle time has a closed form:

    cycle(n) = (n·s + L + sqrt((n·s - L)² + 4·s·L)) / 2
"""

from __future__ import annotations

from typing import Any

import numpy as np


def cycle(customers: Any, work: Any, wait: Any) -> Any:
    """Time in which each customer is served once. Numbers or arrays, work and wait in one unit; cycle(1) = work + wait."""
    busy = customers * work
    return (busy + wait + np.sqrt((busy - wait) ** 2 + 4 * work * wait)) / 2
