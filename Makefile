# Everything sets itself up: `make demo` and `make test` work in a fresh clone. PYTHON chooses the interpreter.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo routing studio test test-all torture lint bench setup clean help

help:  ## show what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /make \1\t/' | expand -t 16

demo: $(READY)  ## train on 5,000 real digits (a few minutes), evaluate, draw reconstructions and mistakes
	rm -rf out/demo
	$(BIN)/torchcaps train mnist-5k --out out/demo
	$(BIN)/torchcaps evaluate out/demo
	@echo
	@echo "Look at  out/demo/evaluation/examples.png and confusion.png"
	@echo "Try      $(BIN)/torchcaps train path/to/pictures   one subfolder for each class"
	@echo "         $(BIN)/torchcaps predict out/demo some.png"
	@echo "         $(BIN)/torchcaps train mnist-5k --routing dynamic --iterations 3"
	@echo "         $(BIN)/torchcaps --help"

routing: $(READY)  ## watch routing decide between a 2 and a 3: tables, and a picture in out/
	$(BIN)/python examples/two_or_three.py --out out/two_or_three.png

studio: $(READY)  ## play in the browser: points to cluster, digits to draw, routing trees
	$(BIN)/torchcaps studio

test: $(READY)  ## run the tests (a few minutes)
	$(BIN)/python -m pytest -n auto -m "not slow"

test-all: $(READY)  ## run the tests, those of native compilation included (much longer)
	$(BIN)/python -m pytest -n auto

torture: $(READY)  ## hard use at length: kills, full disks, broken files, extreme votes, leaks, sanitizers; a table, and out/torture.json
	$(BIN)/python -m torture

lint: $(READY)  ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)  ## time layers and models against textbook versions of themselves: a table, and out/bench.json
	$(BIN)/torchcaps bench --json out/bench.json

setup: $(READY)  ## make the virtual environment (skipped when nothing changed)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "torchcaps needs Python 3.10 or newer; choose one with make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]" --constraint constraints.txt
	@touch $@

clean:  ## remove the virtual environment and everything generated
	rm -rf $(VENV) out build dist .pytest_cache .hypothesis .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
