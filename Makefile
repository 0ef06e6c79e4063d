# Everything sets itself up: `make demo` and `make test` work in a fresh clone. PYTHON chooses the interpreter.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

.PHONY: demo routing studio test test-all torture lint bench setup lock versions release clean help

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
	$(BIN)/python -m pytest -n auto --dist loadfile -m "not slow"

test-all: $(READY)  ## run the tests, those of native compilation included (much longer)
	$(BIN)/python -m pytest -n auto

torture: $(READY)  ## hard use at length: kills, full disks, broken files, links, a busy server, ...; a table, and out/torture.json
	$(BIN)/python -m torture

lint: $(READY)  ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)  ## time layers and models against textbook versions of themselves: a table, and out/bench.json
	$(BIN)/torchcaps bench --json out/bench.json

setup: $(READY)  ## make the virtual environment (skipped when nothing changed)

# The lock is for one Python and platform, and for the CPU build of torch. Elsewhere, and where pip finds no such build,
# constraints.txt chooses versions, without hashes. `make LOCKED=true` insists on the lock.
LOCKED = $(BIN)/python -c 'import sys, sysconfig as c; sys.exit((sys.version_info[:2], c.get_platform()) != ((3, 11), "linux-x86_64"))' \
	&& $(PIP) install --dry-run --no-deps "$$(grep -o "^torch==[^ ]*" lock.txt)" > $(VENV)/torch.txt 2>&1

$(READY): pyproject.toml constraints.txt lock.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "torchcaps needs Python 3.10 or newer; choose one with make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	@if $(LOCKED); then \
	  echo "setup: lock.txt, every file checked against its hash" && $(PIP) install --require-hashes --requirement lock.txt \
	  && $(PIP) install --no-deps --no-build-isolation --editable .; \
	else \
	  echo "setup: constraints.txt, without hashes (lock.txt is for Python 3.11 on Linux, x86-64, where pip finds the CPU build of torch)" \
	  && $(PIP) install --editable ".[dev,release]" --constraint constraints.txt; \
	fi
	@touch $@

lock:  ## make lock.txt anew from pyproject.toml and constraints.txt (Python 3.11; ten minutes)
	$(PYTHON) -m venv --clear build/lock
	build/lock/bin/python -m pip install --quiet --disable-pip-version-check pip-tools==7.6.2
	CUSTOM_COMPILE_COMMAND="make lock" build/lock/bin/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras \
	  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options \
	  --extra dev --extra release --build-deps-for editable --constraint constraints.txt --output-file lock.txt pyproject.toml

versions:  ## a part of the tests with the lowest and the newest versions allowed (about a quarter of an hour)
	$(PYTHON) scripts/versions.py

# URL, the project's public address, makes links of the README absolute and writes the urls of the metadata.
release: $(READY)  ## sdist, wheel, and a list of packages with hashes (CycloneDX), in dist/; URL=https://... for urls and links
	rm -rf dist
	TORCHCAPS_URL="$(URL)" $(BIN)/python -m build --no-isolation --outdir dist .
	$(BIN)/python -m twine check --strict dist/*.tar.gz dist/*.whl
	$(BIN)/python scripts/sbom.py dist

clean:  ## remove the virtual environment and everything generated
	rm -rf $(VENV) out build dist .pytest_cache .hypothesis .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
