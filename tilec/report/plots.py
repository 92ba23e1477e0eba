"""Pictures: `roofline_plot(cost)`, `front_plot(tuned)`, `occupancy_plot(o)`, `waves_plot(w)`, `pipeline_plot(p, slots)`, and the
composed `cost_plot(cost)` and `tune_plot(tuned)`. Each returns a Picture: `.save("out.svg")`, `.figure()`. Extra: `plot`."""

from __future__ import annotations

from tilec.report.canvas import Panel, Picture, below
from tilec.report.plots_cost import cost_plot, front_plot, roofline_plot, tune_plot
from tilec.report.plots_sm import occupancy_plot, pipeline_plot, waves_plot

__all__ = [
    "Panel",
    "Picture",
    "below",
    "cost_plot",
    "front_plot",
    "occupancy_plot",
    "pipeline_plot",
    "roofline_plot",
    "tune_plot",
    "waves_plot",
]
