"""What a person sees: tables, plots, text and data of the results."""

from tilec.report import plots

__all__ = ["plots"]
