"""How long tilec takes: `python -m benchmarks` prints a table, `make bench` writes docs/performance.md from it."""
