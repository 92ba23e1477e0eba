"""Machines as data: one TOML file per chip, every figure with its source. `load("h100-sxm")` gives a `Target`."""

from __future__ import annotations

from tilec.targets.load import load, names
from tilec.targets.target import Figure, Limits, Target

__all__ = ["Figure", "Limits", "Target", "load", "names"]
