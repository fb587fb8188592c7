# Every target works from a fresh clone: it makes .venv and installs what it needs.
PYTHON ?= python3
BIN := .venv/bin
LOCK_OPTIONS ?= --torch-backend cpu
RUNS ?= 200000
PIP := $(BIN)/python -m pip install --disable-pip-version-check -q -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo flower-demo test notebooks lint format browser docs docs-serve paper peers bench methods-cost methods-page reference-pages dist clean
.PHONY: lock locked audit versions campaigns campaign-fuzz campaign-kill campaign-soak campaign-faults campaign-apps campaign-atheris

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 17

demo: .venv/train  ## the paper's six methods on real images: a table and a picture, in about a minute
	@rm -rf build/demo
	$(BIN)/gammafl compare logistic-mini --seeds 0,1 --out build/demo

flower-demo: .venv/flower  ## a real SuperLink and three SuperNodes, one of them killed: a table, in five minutes; LINK=1mbit: over thin links
ifdef LINK
	$(PIP) altair vl-convert-python
	$(BIN)/python examples/flower_app/thin_link.py "$(LINK)" build/flower-link
else
	$(BIN)/python examples/flower_app/demo.py build/flower-demo $(ROUNDS)
endif

test: .venv/dev  ## the test suite
	$(BIN)/python -m pytest -n 2 --dist worksteal

notebooks: .venv/dev  ## runs the notebooks of examples/notebooks, with their outputs; two minutes
	$(BIN)/python -m tools.notebooks

campaigns: .venv/dev  ## all campaigns without a download, in less than an hour; writes the table of docs/reliability.md
	$(BIN)/python -m tests.campaigns

campaign-fuzz: .venv/dev  ## ten million inputs for the decoder
	$(BIN)/python -m tests.campaigns.fuzz

campaign-kill: .venv/dev  ## kills runs and ServerApps at 200 random times: they continue, byte for byte
	$(BIN)/python -m tests.campaigns.kill

campaign-soak: .venv/dev  ## 120,000 rounds in one process: memory, open files, ledger
	$(BIN)/python -m tests.campaigns.soak

campaign-faults: .venv/dev  ## accuracy if 30% of the uploads fail
	$(BIN)/python -m tests.campaigns.faults

campaign-apps: .venv/dev  ## apps with the two lines and without: progress and bytes, the tables of docs/apps.md
	$(BIN)/python -m tests.campaigns.apps

campaign-atheris:  ## tests the decoder with a coverage-guided fuzzer; RUNS=200000
	@test -x .atheris/bin/python || { $(PYTHON) -m venv .atheris && \
		.atheris/bin/python -m pip install --disable-pip-version-check -q -c constraints.txt atheris numpy numba; }
	PYTHONPATH=src .atheris/bin/python -m tests.campaigns.atheris_decoder -runs=$(RUNS)

versions: .venv/dev  ## the oldest and newest supported versions of numpy, numba, torch, flwr; downloads much
	$(BIN)/python -m tests.campaigns.versions

lock: .venv/dev  ## makes requirements.lock again, from constraints.txt
	@head -2 requirements.lock > build-lock.txt
	$(BIN)/uv pip compile -q pyproject.toml --extra dev -c constraints.txt --generate-hashes --no-emit-package torch \
		--no-header --no-annotate --python-version 3.11.5 $(LOCK_OPTIONS) >> build-lock.txt
	@mv build-lock.txt requirements.lock

locked:  ## .venv from requirements.lock: every file's hash is checked, except torch's
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check -q --require-hashes --no-deps -r requirements.lock
	$(PIP) torch
	$(PIP) --no-deps -e .
	@touch .venv/train .venv/flower .venv/docs .venv/dev

audit: .venv/dev  ## known vulnerabilities in the locked versions: asks PyPI, or reads OSV's records, ADVISORIES=all.zip
	@test -n "$(ADVISORIES)" || test -x .audit/bin/pip-audit || \
		{ $(PYTHON) -m venv .audit && .audit/bin/python -m pip install -q pip-audit; }
	@$(BIN)/python -m tests.campaigns.audit --pip-audit .audit/bin/pip-audit $(ADVISORIES:%=--advisories %)

lint: .venv/dev  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/dev  ## formats the code with ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

browser:  ## installs a Chromium for the tests of the HTML page if there is none: Debian's, as root
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || \
		{ apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium; }

paper: .venv/train  ## runs what is missing of the paper's evaluation, into results/; takes days, can be stopped; MINUTES=170, JOBS=2
	$(BIN)/python -m tools.paper_runs $(MINUTES:%=--minutes %) $(JOBS:%=--jobs %)

peers: .peers/ready  ## an environment with pfl-research and Flower, for the comparison in benchmarks

bench: .venv/train .peers/ready  ## all measurements of docs/performance.md; an hour on two idle cores
	@for what in compress wire density simulate parts gpt2 growth scale start; do \
		$(BIN)/python -m benchmarks $$what | tee benchmarks/output/$$what.txt || exit 1; done

methods-cost: .venv/dev  ## measures the cost of every method, some minutes on an idle core; then writes docs/methods.md
	$(BIN)/python -m benchmarks methods --out benchmarks/output/methods.json
	$(BIN)/python -m tools.methods_page

methods-page: .venv/dev  ## docs/methods.md from the registry
	$(BIN)/python -m tools.methods_page

reference-pages: .venv/dev  ## docs/cli.md from the commands, docs/configuration.md from the schema
	$(BIN)/python -m tools.cli_page
	$(BIN)/python -m tools.configuration_page

docs: .venv/docs  ## builds the site in build/site; a broken link or a page that is not listed is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

docs-serve: .venv/docs  ## serves the site on this machine, and builds it again after each change
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

dist: .dist/ready  ## wheel and source distribution in dist/: checked, installed without extras and with each, and used; eight minutes on an idle machine
	.dist/bin/python -m tools.dist

clean:  ## remove the environment and everything that was built
	rm -rf .venv .peers .audit .atheris .dist build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

.venv/train: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) -e '.[train]'
	@touch $@

.venv/flower: .venv/train
	$(PIP) -e '.[flower,train]'
	@touch $@

.venv/docs: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) -e '.[docs]'
	@touch $@

.peers/ready: benchmarks/peers/requirements.txt
	@test -x .peers/bin/python || $(PYTHON) -m venv .peers
	.peers/bin/python -m pip install --disable-pip-version-check -q -r $<
	@touch $@

.dist/ready:
	@test -x .dist/bin/python || $(PYTHON) -m venv .dist
	.dist/bin/python -m pip install --disable-pip-version-check -q build twine
	@touch $@

.venv/dev: .venv/train
	$(PIP) -e '.[dev]'
	@touch $@
