# Every target works from a fresh clone: it makes .venv and installs what it needs.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test lint format clean

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: .venv/train  ## all six methods on real images: a table and a picture, in about a minute
	@rm -rf build/demo
	$(BIN)/gammafl compare logistic-mini --seeds 0,1 --out build/demo

test: .venv/dev  ## the test suite
	$(BIN)/python -m pytest -n 2

lint: .venv/dev  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/dev  ## let ruff put things in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove the environment and everything that was built
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

.venv/train: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) -e '.[train]'
	@touch $@

.venv/dev: .venv/train
	$(PIP) -e '.[dev]'
	@touch $@
