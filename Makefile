# make demo          the main job: pick, prove, print, price and run GEMM+SiLU and a quantize chain
# make test          format, lint, types and every test
# make check-long    the same with the long property tests
# make test-triton   emitted Triton kernels in Triton's interpreter, and compiled for five architectures without a GPU
# make lint, format  only the checks; lay the code out
# make docs          write generated pages and the printed output of pages and examples again
# make bench         measure tilec itself: docs/performance.md (a minute; the machine should be idle)
# make model-report  hold the cost model against public measurements: docs/model.md (a few minutes)
# make gpu-report    compile kernels for five GPU architectures, no GPU needed: docs/gpu.md (a quarter of an hour of one core)
# make clean         remove what these made outside docs/
# Each target sets up .venv (test-triton: .venv-triton) by itself from the pinned requirement files.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
BASE   := $(VENV)/.base-ready
DEV    := $(VENV)/.dev-ready
TRITON_VENV := .venv-triton
TRITON := $(TRITON_VENV)/.ready
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check
JOBS   ?= 2
PYTEST := $(BIN)/python -m pytest -n $(JOBS)

.DEFAULT_GOAL := help
.PHONY: help demo test test-triton check-long lint format docs bench model-report gpu-report clean

help:
	@sed -n '/^$$/q; s/^# //p' Makefile

$(BASE): requirements.txt requirements-build.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tilec needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	@echo "setting up $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install -r requirements.txt -r requirements-build.txt
	@$(PIP) install --no-build-isolation --no-deps --editable .
	@touch $@

$(DEV): $(BASE) requirements-dev.txt
	@echo "installing the test tools into $(VENV)"
	@$(PIP) install -r requirements-dev.txt
	@touch $@

$(TRITON): requirements-triton.txt requirements-dev.txt requirements.txt requirements-build.txt pyproject.toml
	@echo "setting up $(TRITON_VENV)"
	@test -x $(TRITON_VENV)/bin/python || $(PYTHON) -m venv $(TRITON_VENV)
	@$(TRITON_VENV)/bin/python -m pip --quiet --disable-pip-version-check install -r requirements-triton.txt -r requirements-build.txt
	@$(TRITON_VENV)/bin/python -m pip --quiet --disable-pip-version-check install --no-build-isolation --no-deps --editable .
	@touch $@

demo: $(BASE)
	@$(BIN)/python examples/demo.py

lint: $(DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(DEV)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: lint
	$(PYTEST)

test-triton: $(TRITON)
	$(TRITON_VENV)/bin/python -m pytest -n $(JOBS) tests/triton tests/gpu

check-long: lint
	TILEC_PROPERTY_PAIRS=20000 $(PYTEST)

# Look at the diff before committing.
docs: $(DEV)
	$(BIN)/python -m tests.regenerate

gpu-report: $(TRITON)
	$(TRITON_VENV)/bin/python -m benchmarks.gpu_report

bench: $(BASE)
	@$(BIN)/python -m benchmarks --write docs/performance.md

# Writes docs/model.md, docs/model.json and docs/model/*.svg.
model-report: $(DEV)
	@$(BIN)/python -m benchmarks.model.report

clean:
	rm -rf $(VENV) $(TRITON_VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
