"""`python -m tilec` is the command line."""

from __future__ import annotations

from tilec.cli import entry

if __name__ == "__main__":
    entry()
