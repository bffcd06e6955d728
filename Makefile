# Everything a contributor runs. Needs Python >= 3.11, make and git; the rest goes into .venv.
# Another interpreter: make PYTHON=python3.12 test

PYTHON ?= python3
JOBS ?= 2

VENV := .venv
BIN := $(VENV)/bin
DEV := $(VENV)/.installed-dev
DOC := $(VENV)/.installed-doc
BENCH := $(VENV)/.installed-bench
TUTORIAL := $(VENV)/.installed-tutorial
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

.DEFAULT_GOAL := help
.PHONY: help install demo priors test quick trial lint types format docs figures tutorials build clean distclean
.PHONY: bench-shift bench-citeseq bench-clusters bench-denoising bench-depth bench-features bench-labels bench-levels bench-load bench-neocortex bench-panels bench-paper bench-real bench-scale bench-speed bench-synthetic bench-unseen

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The environment is made once, and again whenever its description changes.
$(DEV): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "dice needs Python 3.11 or newer: make PYTHON=python3.11 ..."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV); the first time takes some minutes."
	@$(PIP) 'pip>=25.1'
	@$(PIP) --constraint constraints.txt --group dev --editable .
	@touch $@

$(DOC): $(DEV)
	@$(PIP) --constraint constraints.txt --group doc
	@touch $@

$(TUTORIAL): $(DEV)
	@$(PIP) --constraint constraints.txt --group tutorial
	@touch $@

$(BENCH): $(DEV) benchmarks/peers.txt
	@$(PIP) --constraint constraints.txt --constraint benchmarks/peers.txt --group bench
	@touch $@

install: $(DEV)  ## make .venv with the package and the development tools

demo: $(DEV)  ## annotate a shallow query of another technology, and compare; writes dice_demo/
	$(BIN)/python benchmarks/demo.py $(ARGS)

# One thread per worker, so that the workers do not fight over the cores. Numba has to be told too: its first parallel
# function (scanpy's normalize_total) otherwise raises the thread count of the OpenMP that torch uses.
test: lint types  ## lint, types and tests
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) -m "not trial" $(ARGS)

# The mathematics, the data layer and one path through each verb.
QUICK := $(addprefix tests/,model labels clusters features data query test_api_manners.py test_arguments.py) \
	$(addprefix tests/,test_architecture.py test_errors.py test_imports.py test_metrics.py tl/test_one_reading.py)

quick: $(DEV)  ## the tests to run after every change, in about a minute
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(JOBS) -m "not slow and not data" $(QUICK) $(ARGS)

trial: $(DEV)  ## start every benchmark as its target does, on simulated cells, through to its table
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) -m trial $(ARGS)

lint: $(DEV)  ## ruff: rules and formatting; zizmor: what is unsafe in the workflows
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/zizmor --quiet --offline --persona pedantic .

types: $(DEV)  ## mypy on src
	$(BIN)/mypy

format: $(DEV)  ## apply ruff's fixes and formatting
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(DOC)  ## build docs/_build/html; a warning is an error, and so is a link that leads nowhere
	$(BIN)/python -m sphinx -W --keep-going --fresh-env -b html docs docs/_build/html
	$(BIN)/python docs/check.py docs/_build/html

tutorials: $(TUTORIAL)  ## execute the notebooks of tutorials/ and store their outputs; NAMES=... for some of them
	OMP_NUM_THREADS=2 NUMBA_NUM_THREADS=2 $(BIN)/python tutorials/run.py $(NAMES)

priors: $(DEV)  ## build the ready priors from their recipes; NAMES=... for some of them
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python priors/build.py $(NAMES)

# One thread: the figures are compared on one machine, and small matrices gain nothing from more.
bench-real: $(BENCH)  ## compare with other methods on real data (hours); writes docs/benchmarks/real.md
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python benchmarks/real.py $(ARGS)

bench-clusters: $(BENCH)  ## clusters at each method's own choice, also where there are none; writes docs/benchmarks/clusters.md
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python benchmarks/clusters_peers.py $(PEERS)
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python benchmarks/clusters.py $(ARGS)

bench-denoising: $(BENCH)  ## one half of the counts from the other, and shuffled counts; writes docs/benchmarks/denoising.md
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python benchmarks/denoising.py $(ARGS)

bench-features: $(BENCH)  ## proteins of a query, with intervals; writes docs/benchmarks/features.md
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python benchmarks/features.py $(ARGS)

bench-citeseq: $(BENCH)  ## the paper's CITE-seq experiment; downloads 1 GB, writes docs/benchmarks/citeseq.md
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python benchmarks/citeseq.py $(ARGS)

bench-neocortex: $(BENCH)  ## the paper's experiment across studies; writes docs/benchmarks/neocortex.md
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python benchmarks/neocortex.py $(ARGS)

bench-paper: $(DEV)  ## the paper's own network, timed and trained for an hour; writes docs/benchmarks/paper_settings.md
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python benchmarks/paper_settings.py $(ARGS)

bench-synthetic: $(DEV)  ## the paper's synthetic experiments beside the exact posterior; writes docs/benchmarks/synthetic.md
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python benchmarks/synthetic.py --literal 40 $(ARGS)

bench-unseen: $(BENCH)  ## labels and clusters on sets that nothing was tuned to; downloads 215 MB, writes docs/benchmarks/unseen.md
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python benchmarks/unseen.py $(ARGS)

bench-shift: $(BENCH)  ## queries of other technologies; writes docs/benchmarks/shift.md
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python benchmarks/shift.py $(ARGS)

bench-levels: $(DEV)  ## safe labels along trees of labels, and coarse labels in the reference; writes docs/benchmarks/levels.md
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python benchmarks/levels.py $(ARGS)

bench-panels: $(DEV)  ## spatial panels and queries of few genes; writes docs/benchmarks/panels.md
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python benchmarks/panels.py $(ARGS)

bench-depth: $(DEV)  ## queries with fewer counts than their reference; writes docs/benchmarks/depth.md
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python benchmarks/depth.py $(ARGS)

bench-scale: $(DEV)  ## memory and time up to a million cells; 1 GB of temporary files, tables into docs/benchmarks
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python benchmarks/scale.py $(ARGS)

bench-load: $(DEV)  ## several calls at once, and a busy core: time and memory beside one call; writes docs/benchmarks/load.md
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python benchmarks/load.py $(ARGS)

bench-speed: $(BENCH)  ## seconds and memory, alone and beside other tools; CELLTYPIST=path/to/python where that one is
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python benchmarks/speed.py $(ARGS)
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python benchmarks/speed_peers.py $(addprefix --celltypist ,$(CELLTYPIST)) $(PEERS)

figures: $(DEV)  ## draw the pictures of docs/figures.md again; NAMES=... for some of them
	OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python benchmarks/figures.py $(NAMES)

.PHONY: fuzz faults mutants
SINGLE := OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 JOBS=$(JOBS)

fuzz: $(DEV)  ## forged priors, damaged files and odd objects by the thousand; the table lands in docs/benchmarks
	$(SINGLE) $(BIN)/python tests/hazards/fuzz.py
	$(SINGLE) DICE_HYPOTHESIS=long $(BIN)/python -m pytest -n $(JOBS) -q tests/test_hazards.py tests/test_load.py tests/tl/test_properties.py

faults: $(DEV)  ## kills, full disks, vanished files; the table lands in docs/benchmarks
	$(SINGLE) $(BIN)/python tests/hazards/faults.py

mutants: $(DEV)  ## a new sample of small changes of the code: do its tests notice? SEED=n for a sample again
	$(SINGLE) $(BIN)/python tests/mutants.py $(addprefix --seed ,$(SEED)) $(ARGS)

bench-labels: $(DEV)  ## measure label transfer, sets, novelty and rho; hours, taken up where it was left
	for name in transfer sets novelty rho; do \
		OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 $(BIN)/python benchmarks/$$name.py $(ARGS) || exit 1; done

build: $(DEV)  ## build sdist and wheel into dist/ and check them
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*

clean:  ## remove what was built; keeps .venv
	rm -rf build dist htmlcov dice_demo docs/_build docs/generated
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage .coverage.*
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean  ## remove .venv as well
	rm -rf $(VENV)
