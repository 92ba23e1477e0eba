"""The emitted kernels of every kind (schedules.py), what the compiler makes of them beside the model (report.py, page.py), and
the files that benchmarks/gpu.py runs on a machine with a GPU (emit.py)."""
