# Everything a newcomer types. `make demo` and `make test` set up what they need; nothing else has to be installed first.
#   PY=…   another Python 3.11 or newer to make .venv with, or, with VENV=, one that has everything already
SHELL := /bin/bash
VENV ?= .venv
PY ?= python3
PYTHON := $(if $(VENV),$(VENV)/bin/python,$(PY))
PYTEST := $(PYTHON) -m pytest
DEMO := LAB_NAME=demo LAB_NET=10.77.200.0/24

.PHONY: help setup engine demo demo-end test test-fast test-full lint bench knowledge-fresh

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 18

setup:  ## install what is missing: packages of the machine, .venv, this project
	@PY=$(PY) VENV=$(VENV) lab/setup.sh

engine: setup  ## build the real SGLang for the CPU, once, for lab hosts
	@$(PYTHON) -m lab.engine

demo: setup  ## deploy the real server to three real hosts, or, where that is impossible, to a simulated fleet
	@$(DEMO) $(PYTHON) -m lab.demo

demo-end:  ## take the demo's hosts away
	@$(DEMO) $(PYTHON) -m sglfleet lab down

test: setup lint  ## everything but the long sweeps and what needs a GPU
	@$(PYTHON) -m lab.engine --if-possible
	@$(PYTEST) -m "not full and not gpu"

test-fast:  ## pure tests only: no root, no network, no host
	@$(PYTEST) -m "not lab and not engine and not full and not gpu"

test-full: setup lint  ## all of it, long sweeps too
	@$(PYTHON) -m lab.engine --if-possible
	@$(PYTEST) -m "not gpu"

lint:  ## ruff, mypy strict, import layers
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m ruff format --check .
	@$(PYTHON) -m mypy
	@$(PYTHON) -c "from importlinter.cli import lint_imports_command; lint_imports_command()"

bench: setup  ## the project's own speed
	@for script in benchmarks/*.py; do echo "== $$script"; $(PYTHON) -m benchmarks.$$(basename $$script .py) || exit 1; done

knowledge-fresh: setup  ## read the newest releases' wheels again and say what their gates changed
	@$(PYTHON) -m sglfleet knowledge fresh
