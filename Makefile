# gatekeeper: `make run` tries it, `make test` proves it, `make check` is the quick part of the proof.
#
#   make run          environment, model, embedded service, three example changes gated, then the UI until Ctrl-C
#   make run ONCE=1   the same, but stops after the verdicts
#   make test         everything, including a gate on the real engine and a browser test; goes on after what fails
#   make test-engine  of that, what runs on the real engine
#   make test-others  of that, everything else
#   make test-long    what takes real vLLM from ten minutes to an hour: every planted fault, engines taking turns
#   make check        ruff, mypy, import directions, unit and architecture tests
#   make docs         the documentation as a site, in build/docs
#   make clean        removes the environment, caches and the built model; keeps the service's data
#   make clean ALL=1  removes the service's data too
#
# GATEKEEPER_HOME (default .gatekeeper/ here) holds the service's data, PYTHON names the Python to use.

export GATEKEEPER_HOME := $(or $(abspath $(GATEKEEPER_HOME)),$(CURDIR)/.gatekeeper)
export HF_HUB_OFFLINE := 1
BIN := .venv/bin
BOOTSTRAP = python=$$(sh scripts/python.sh) && "$$python" scripts/bootstrap.py
STEP := sh scripts/step.sh
PYTEST := $(BIN)/python -m pytest

.PHONY: run test test-engine test-others test-long check lint docs clean env
.DEFAULT_GOAL := run
.NOTPARALLEL:

run:
	@$(BOOTSTRAP) env model
	@$(BIN)/gatekeeper demo $(if $(ONCE),--once)

test:
	@$(BOOTSTRAP) env model browser
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory --keep-going test-others test-engine

# The real engine uses every core, so nothing runs beside it; the rest waits a good deal, so two processes share it.
test-engine: env
	@$(PYTEST) -m "not long and engine"

test-others: env
	@$(PYTEST) -m "not long and not engine" --numprocesses 2 --dist loadfile

test-long:
	@$(BOOTSTRAP) env model
	@$(PYTEST) -m long

check: env lint
	@$(PYTEST) tests/unit tests/architecture

lint:
	@$(STEP) ruff $(BIN)/ruff check
	@$(STEP) format $(BIN)/ruff format --diff --quiet
	@$(STEP) mypy $(BIN)/mypy
	@$(STEP) imports $(BIN)/lint-imports --no-logo

# mkdocs lives in an environment of its own: it shares no package with the service.
docs: env
	@test -x .venv-docs/bin/mkdocs || { $(BIN)/python -m venv .venv-docs && .venv-docs/bin/pip install --quiet -r requirements/docs.txt; }
	@$(BIN)/python scripts/reference.py docs/reference
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --quiet --site-dir build/docs
	@echo "build/docs/index.html"

env:
	@$(BOOTSTRAP) env

clean:
	rm -rf .venv .venv-docs docs/reference .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist *.egg-info "$(GATEKEEPER_HOME)/models"
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	$(if $(ALL),rm -rf "$(GATEKEEPER_HOME)",@echo "kept the service's data in $(GATEKEEPER_HOME); make clean ALL=1 removes it")
