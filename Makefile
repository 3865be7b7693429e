# Every task of a developer and of CI; `make` alone lists them. All Python lives in .venv, all C++
# output in build/. pip's own variables (index, cache, proxy) are respected.
PYTHON ?= python3
PYTEST_ARGS ?=
TEST_JOBS ?= 3
VERSIONS ?=
PARTS ?=
WHEELS ?=

VENV := .venv
BIN := $(VENV)/bin
SETUP := $(VENV)/.setup-done
TOOLS := $(VENV)/.tools-done
BUILD := $(VENV)/.build-done
DOCS_VENV := build/site/venv
DOCS_TOOLS := $(DOCS_VENV)/.tools-done
# Tests wait more than they compute.
PYTEST := $(BIN)/python -m pytest -n $(TEST_JOBS) --dist worksteal
PINNED := python -m pip install --quiet --disable-pip-version-check -c constraints.txt
PIP_INSTALL := $(BIN)/$(PINNED)

# Trainers bring packages that nothing else here needs.
INTEGRATIONS := build/integrations
TRAINERS := $(INTEGRATIONS)/.trainers-done
TRAINER_PINS := -c tests/integrations/constraints.txt

NATIVE_SOURCES := CMakeLists.txt $(shell find core bindings -name '*.[ch]pp' -o -name CMakeLists.txt)
CXX_SOURCES := $(shell find core bindings tests/core -name '*.[ch]pp') $(wildcard bpf/*.[ch] benchmarks/*.bpf.c)

# Programs for the kernel, where there is what compiles them: Debian's clang and libbpf-dev.
PROGRAMS := src/sparsewire/xdp/slots.bpf.o
BPF_CLANG := $(firstword $(foreach name,clang clang-19 clang-16 clang-14,$(shell command -v $(name))))
KERNEL_PROGRAMS := $(if $(BPF_CLANG),$(and $(wildcard /usr/include/bpf),$(PROGRAMS)))

# ThreadSanitizer does not start where the kernel randomises addresses widely, so the tests that
# it watches run without that where the system lets us.
FIXED_ADDRESSES := $(shell setarch -R true 2>/dev/null && echo setarch -R)

.DEFAULT_GOAL := help
.PHONY: help setup build bpf test test-all test-integrations core-tests torch-matrix gpu-test gpu-day wheel docs lint format sanitize demo clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 26

setup: $(TOOLS) build  ## make .venv with all that building and checking need, and compile everything
	PATH="$(CURDIR)/$(BIN):$$PATH" .ci/core-tests --build-only build/core-tests

build: $(BUILD) $(KERNEL_PROGRAMS)  ## compile what changed: the native module, and programs for the kernel

bpf: $(PROGRAMS)  ## compile the programs for the kernel (needs clang and libbpf-dev)

test: $(TOOLS) build core-tests  ## run the C++ and the Python tests (PYTEST_ARGS="-k name" selects)
	$(PYTEST) --extent quick $(PYTEST_ARGS)

test-all: test  ## run what `make test` leaves out as well: long tests, every combination
	$(PYTEST) --extent rest --timeout 300 $(PYTEST_ARGS)

test-integrations: $(TRAINERS)  ## run the examples of trainers in an environment of their own, 2 GB
	$(INTEGRATIONS)/bin/python -m pytest tests/integrations $(PYTEST_ARGS)

core-tests: $(TOOLS)  ## run the C++ tests alone
	PATH="$(CURDIR)/$(BIN):$$PATH" .ci/core-tests build/core-tests

torch-matrix: $(TOOLS) build  ## run tests/torch on several versions of torch, some GB each (VERSIONS="2.9.0 newest" selects)
	$(BIN)/python .ci/torch-matrix $(VERSIONS)

gpu-test: $(TOOLS) build  ## run the tests that need a GPU, under compute-sanitizer too where it is on PATH
	$(BIN)/python .ci/gpu-day --installed --limit inf --out build/gpu-test tests memory $(if $(PYTEST_ARGS),-- $(PYTEST_ARGS))

gpu-day:  ## do all that needs a GPU, without an index: PARTS="build tests" selects, WHEELS=folder has what is missing
	$(PYTHON) .ci/gpu-day $(PARTS) $(if $(WHEELS),--wheels "$(WHEELS)") $(if $(PYTEST_ARGS),-- $(PYTEST_ARGS))

wheel: $(TOOLS) $(if $(BPF_CLANG),$(and $(wildcard /usr/include/bpf),$(PROGRAMS)))  ## make an sdist and a wheel for every Python that is here, and try them
	$(BIN)/python .ci/wheels

docs: $(DOCS_TOOLS)  ## make the site of the docs, build/site/html; any warning fails
	$(DOCS_VENV)/bin/python .ci/docs

lint: $(TOOLS)  ## check style and types, Python and C++, and that docs quote what was measured
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run -Werror $(CXX_SOURCES)
	$(BIN)/python benchmarks/tables.py --check

format: $(TOOLS)  ## rewrite the sources in the project's style
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_SOURCES)

sanitize: $(TOOLS)  ## run the C++ tests under the address, undefined behaviour and thread sanitizers
	PATH="$(CURDIR)/$(BIN):$$PATH" .ci/core-tests build/sanitize-address address,undefined
	PATH="$(CURDIR)/$(BIN):$$PATH" $(FIXED_ADDRESSES) .ci/core-tests build/sanitize-thread thread

demo: build  ## show the difference that sparse communication makes, on this machine
	$(BIN)/sparsewire demo

clean:  ## remove what was built; .venv stays
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis $(BUILD) $(PROGRAMS)
	find src tests examples benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

$(SETUP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "sparsewire needs Python 3.10 or newer: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) scikit-build-core nanobind cmake ninja
	$(PIP_INSTALL) --no-build-isolation --editable ".[torch,plots,lab]"
	@touch $@ $(BUILD)

$(TRAINERS): pyproject.toml constraints.txt tests/integrations/constraints.txt $(NATIVE_SOURCES)
	$(PYTHON) -m venv $(INTEGRATIONS)
	$(INTEGRATIONS)/bin/$(PINNED) $(TRAINER_PINS) torch scikit-build-core nanobind \
	  cmake ninja pytest pytest-timeout hypothesis lightning accelerate transformers "ray[train]" torchft
	PATH="$(CURDIR)/$(INTEGRATIONS)/bin:$$PATH" \
	  $(INTEGRATIONS)/bin/$(PINNED) $(TRAINER_PINS) --no-build-isolation -C build-dir=$(INTEGRATIONS)/ext --editable ".[torch]"
	@touch $@

# What testing and checking need as well; the demo does without.
$(TOOLS): $(SETUP)
	$(PIP_INSTALL) --no-build-isolation --editable ".[torch,mpi,plots,lab,dev]"
	@touch $@

# Pages and docstrings are read, and nothing is imported, so that this needs no build.
$(DOCS_TOOLS): constraints.txt
	$(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	  mkdocs-material mkdocstrings-python ruff
	@touch $@

$(PROGRAMS): $(wildcard bpf/*.[ch])
	@test -n "$(BPF_CLANG)" || { echo "make bpf needs clang: apt-get install clang libbpf-dev"; exit 1; }
	$(BPF_CLANG) -O2 -g -target bpf -mcpu=v3 -Wall -Wextra \
	  -isystem /usr/include/$(shell uname -m)-linux-gnu -c bpf/slots.bpf.c -o $@

# Editable: Python files are read from src/, so that only C++ ever needs this step again.
$(BUILD): $(SETUP) $(NATIVE_SOURCES)
	$(PIP_INSTALL) --no-build-isolation --no-deps --editable .
	@touch $@
