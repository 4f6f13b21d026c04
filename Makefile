# make demo      set up, read the handbook into a library, ask it three questions
# make web       set up, open the demo as a page on this machine (ARGS="--library my-library --open")
# make test      set up, run the tests that everybody runs, in minutes
# make test-all  those and the slow ones: every cell of families and methods, kills, clusters, large files (an hour or more)
# make test-browser  those of pages, in a browser: they need Chromium (Debian: apt-get install chromium)
# make bench     speed and memory as ratios, beside other libraries; writes benchmarks/results (several hours)
# make check     ruff, ruff format, mypy
# make versions  quick tests under each Python, with the oldest and the newest packages
# make clean     remove what the above made (asks nothing; your own libraries elsewhere stay)
#
# PYTHON=python3.12   another interpreter (3.10 to 3.13)
# TORCH=cpu           a PyTorch build other than the default one for your system: cpu, cu126, cu128, rocm6.4 ...
# ARGS="-k htp"       arguments for pytest, or for `python -m tests.versions`
PYTHON ?= python3
VENV   ?= .venv
TORCH  ?=
ARGS   ?=
JOBS   ?= 2

BIN     := $(VENV)/bin
PIP     := $(BIN)/python -m pip install --disable-pip-version-check --no-compile -c constraints.txt
# On all cores, where pip would compile on one, and our own too; what some packages bring is no Python for this interpreter.
COMPILE := $(BIN)/python -m compileall -qq -j 0 $(VENV)/lib plugin adapters demos || true
SETUP   := pyproject.toml constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo web pictures test test-all test-browser versions bench check format clean

help:
	@sed -n '/^[^#]/q; s/^# \{0,1\}//p' Makefile

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' || { \
	  echo "Eddy needs Python 3.10 to 3.13, and \`$(PYTHON)\` is not one: try PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { \
	  echo "\`$(PYTHON)\` cannot make virtual environments: install its venv package (Debian: python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.torch: $(SETUP) | $(BIN)/python
ifneq ($(TORCH),)
	$(PIP) --index-url https://download.pytorch.org/whl/$(TORCH) torch
endif
	@touch $@

$(VENV)/.demo: $(VENV)/.torch
	@echo "Installing (once; PyTorch is the large part) ..." >&2
	$(PIP) -e ".[demo]"
	@$(COMPILE)
	@touch $@

$(VENV)/.dev: $(VENV)/.torch
	@echo "Installing everything for the tests (once; PyTorch is the large part) ..." >&2
	$(PIP) -e ".[all,dev]"
	@$(COMPILE)
	@$(BIN)/eddy models get smollm2 || echo "Without smollm2 its tests are skipped" >&2
	@touch $@ $(VENV)/.demo

# Without the model, the demo takes the bundled one, and says so.
demo: $(VENV)/.demo
	@$(BIN)/eddy models get smollm2 || true
	@$(BIN)/eddy-demo demo

web: $(VENV)/.demo
	@$(BIN)/eddy models get smollm2 || true
	@$(BIN)/eddy-demo serve $(ARGS)

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)

# One after the other: some need both cores or measure memory.
test-all: $(VENV)/.dev
	$(BIN)/python -m pytest -m "not browser and not device" $(ARGS)

test-browser: $(VENV)/.dev
	$(BIN)/python -m pytest -m browser tests/demo $(ARGS)

# The pictures of the page in docs/, by the same browser.
pictures: $(VENV)/.dev
	$(BIN)/python -m tests.demo.pictures docs

# TORCH=cpu here too: for uv, which makes the environments.
versions: $(VENV)/.dev
	$(if $(TORCH),UV_TORCH_BACKEND=$(TORCH)) $(BIN)/python -m tests.versions $(ARGS)

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/bench.py --write $(ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .versions library dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find plugin adapters demos tests -name __pycache__ -type d -prune -exec rm -rf {} +
