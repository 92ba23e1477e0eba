"""python -m benchmarks.gpu_report: see report.py."""

import sys

from benchmarks.gpu_report.report import main

sys.exit(main())
