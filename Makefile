# BEGIN INSTRUCTORS: what stands between these marks is left out of a student's copy
# The two commands that matter: `make lab` to learn, `make test` to check. Both set everything up on first use.
# END INSTRUCTORS

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.complete

# The first Python that is new enough; override with `make lab PYTHON=/path/to/python3`.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

# What Python compiles is kept, whatever the environment asks for: pip compiles nothing (below).
unexport PYTHONDONTWRITEBYTECODE

# BEGIN INSTRUCTORS
JOBS ?= 2
# Two more than there are cores, because tests of sandboxes, processes and browsers wait.
WORKERS ?= $(shell expr $(JOBS) + 2)
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --durations=15 --durations-min=5
# One notebook a worker, one thread each; nobody's progress is touched. Notebooks carry no outputs, so running is the test.
NBVAL = OMP_NUM_THREADS=1 COURSE_HOME="$(CURDIR)/build/home" $(BIN)/python -m pytest -n $(JOBS) --dist loadfile \
	--nbval-lax --nbval-current-env --nbval-cell-timeout 600 -p no:cacheprovider
# END INSTRUCTORS

.PHONY: help lab setup slides clean
# BEGIN INSTRUCTORS
.PHONY: test check lint build nbval gpu
# END INSTRUCTORS
.DEFAULT_GOAL := help

help: ## Print this list
	@echo "Targets:"
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-8s %s\n", $$1, $$2 }'

lab: $(STAMP) ## Set everything up and open JupyterLab on the first lesson
	@$(BIN)/course lab --prepare

# BEGIN INSTRUCTORS
test: setup lint ## Set everything up, then lint, all tests, and every notebook
	$(PYTEST)
	TRITON_INTERPRET=1 $(PYTEST) tests/kernels
	$(MAKE) nbval

check: lint ## Check what changed against `main`, in minutes: lint, layout, and its tests
	OMP_NUM_THREADS=1 $(BIN)/python tests/helpers/what_changed.py -n $(WORKERS) --dist worksteal
# END INSTRUCTORS

setup: $(STAMP) ## Make the virtual environment, fetch and verify the model and the texts
	@$(BIN)/course setup

# BEGIN INSTRUCTORS
lint: $(STAMP) ## Check the style of the code and of the prose
	$(BIN)/ruff check .
	@# Text without a named encoding is another text on Windows. A rule in preview: it alone.
	$(BIN)/ruff check --preview --select PLW1514 course_lib kernels
	$(BIN)/python tests/helpers/prose.py

build: $(STAMP) ## Write the student notebooks from the masters
	$(BIN)/course build
# END INSTRUCTORS

# BEGIN INSTRUCTORS
# Installs nothing and needs no network: the Python that is named, else that of .venv, else the machine's own.
OUT ?= build/gpu
gpu: ## Check and time all kernels on a GPU, within 9 minutes, into OUT (build/gpu)
	@$(if $(filter-out file,$(origin PYTHON)),$(PYTHON),$(or $(wildcard $(BIN)/python),python3)) -m course_lib.kernels.gpu --out "$(OUT)"
# END INSTRUCTORS

slides: setup ## Build the decks into build/slides/
	$(BIN)/course slides

# BEGIN INSTRUCTORS
nbval: setup ## Run every notebook with nothing solved and what a student types, and beside it the master's answers
	$(BIN)/course build --check
	$(BIN)/python tests/helpers/notebooks_to_check.py build/nbval
	$(NBVAL) build/nbval
# END INSTRUCTORS

clean: ## Remove the virtual environment and everything built; the cache and your notebooks stay
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis *.egg-info

# Made again when a pin changes. Interrupted at any point, it goes on from there: the stamp is written last.
# Python compiles what is imported when it is first imported, a third of the 19,000 files; pip would compile them all.
# pip writes RECORD last: what has none was cut off, and pip would stumble over it.
$(STAMP): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" && command -v $(firstword $(PYTHON)) >/dev/null || { echo "Python 3.11 or newer was not found. Install it, or say where it is: make PYTHON=/path/to/python3"; exit 1; }
	@test -x $(BIN)/python && $(BIN)/python -m pip --version >/dev/null 2>&1 || { \
		echo "Making $(VENV) with $$($(PYTHON) --version)"; rm -rf $(VENV); $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "The virtual environment could not be made; on Debian and Ubuntu: apt install python3-venv"; exit 1; }; }
	@$(BIN)/python -c 'import pathlib, shutil, sysconfig; [shutil.rmtree(info) for info in \
		pathlib.Path(sysconfig.get_path("purelib")).glob("*.dist-info") if not (info / "RECORD").is_file()]'
	@echo "Installing $$(grep -c == requirements.lock) pinned packages: 2.4 GB on disk (several GB more with CUDA), a few minutes the first time. The model and its texts follow: 0.2 GB to fetch, 0.6 GB on disk."
	@$(BIN)/python -m pip install --disable-pip-version-check --no-compile $$(test -t 2 || echo --quiet) -r requirements.lock || { \
		echo "The packages could not be installed (see above). Connect to the network and run make again."; exit 1; }
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation -e .
	@touch $(STAMP)
