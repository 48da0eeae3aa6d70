# Everything a fresh machine needs is made here: Python 3.11 or newer and make are enough.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# What pip is told besides, such as where CPU builds of torch are (CONTRIBUTING.md).
PIP_OPTIONS ?=
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_OPTIONS)
DEMO   := traces/mixed
# One more than processors: tests wait for a fifth of the time.
WORKERS ?= 3
# Hypothesis draws the same examples each time: a failure is the change's, and pytest alone goes on looking for others.
# Bytecode is kept even where the environment forbids it, else each worker compiles all tests anew. Threads of
# OpenMP (scikit-learn's, PyTorch's) besides the workers would only wait for each other.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --hypothesis-profile=ci

.PHONY: help demo test fast fuzz lint hooks lab bench wheel docs notebooks pictures results traces clean

help:            ## list the targets
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.base   ## a bundled real capture becomes report.html and a summary on the terminal
	$(BIN)/cct info $(DEMO).ingress.pcap.gz
	$(BIN)/cct report $(DEMO).ingress.pcap.gz --egress $(DEMO).egress.pcap.gz -o report.html

test: $(VENV)/.dev    ## all the tests
	$(PYTEST) --durations=20

fast: $(VENV)/.dev    ## the tests that take seconds, not minutes
	$(PYTEST) -m "not slow"

fuzz: $(VENV)/.fuzz   ## damaged input for kernels, readers and tables; TARGET=pcapng CASES=100000 tries one for longer
	$(BIN)/python -m tests.fuzz $(TARGET) $(if $(CASES),--cases $(CASES)) $(if $(SEED),--seed $(SEED))

lint: $(VENV)/.dev    ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

hooks: $(VENV)/.dev   ## check each commit with ruff, mypy and the notebooks' sources
	$(BIN)/pre-commit install

lab: $(VENV)/.lab     ## JupyterLab on copies of the notebooks, in my_notebooks/
	$(BIN)/python notebooks/build.py --work my_notebooks
	@$(BIN)/cct warm > /dev/null &  # compiles while the browser opens
	$(BIN)/jupyter lab --notebook-dir=my_notebooks

bench: $(VENV)/.dev   ## what is measured against what; prints ratios, and changes since the last time
	$(BIN)/python -m benchmarks

wheel: $(VENV)/.dev   ## dist/*.whl: everything but sources and tests, for pip install elsewhere
	$(BIN)/python -m build --wheel --no-isolation --outdir dist

docs: $(VENV)/.dev    ## the book, into build/docs/index.html; runs the notebooks (once; FAST=1: in their quick form)
	BOOK_NOTEBOOKS=cache $(BIN)/python -m sphinx -c docs -W --keep-going . build/docs

notebooks: $(VENV)/.dev  ## write the .ipynb files from their .py sources
	$(BIN)/python notebooks/build.py

pictures: $(VENV)/.dev   ## make the pictures of README.md and the book's front page again; needs Chromium
	$(BIN)/python docs/pictures.py

results: $(VENV)/.dev    ## list the results behind the book's numbers; NAME=codel makes one again, STALE=1 all that are outdated; WHY=codel lists changes
ifneq ($(WHY),)
	$(BIN)/python -m cctoolkit.experiments.results why $(WHY)
else ifneq ($(NAME)$(STALE),)
	$(BIN)/python -m cctoolkit.experiments.results make $(NAME) $(if $(STALE),--stale)
else
	$(BIN)/python -m cctoolkit.experiments.results list
endif

traces: $(VENV)/.dev  ## make the captures of traces/testbed again (needs the kernels of its manifest)
	$(BIN)/python hardware/launch/make_traces.py

clean:           ## remove what these targets made
	rm -rf $(VENV) report.html build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("cctoolkit needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": make PYTHON=python3.12 …" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: pyproject.toml | $(VENV)/bin/python
	$(PIP) --editable .
	touch $@

# Without torch, gigabytes that only training needs: make test, or pip install -e ".[train]", adds it.
$(VENV)/.lab: pyproject.toml | $(VENV)/bin/python
	$(PIP) --editable ".[notebooks,batch]"
	touch $@ $(VENV)/.base

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	$(PIP) --editable ".[dev,train,notebooks,batch,hardware,docs]"
	touch $@ $(VENV)/.lab $(VENV)/.base

$(VENV)/.fuzz: $(VENV)/.dev
	$(PIP) --editable ".[fuzz]"
	touch $@
