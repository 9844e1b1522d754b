# Everything that people and CI call. `make help` lists it. Needs Python 3.11 or newer, make and git.

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# The newest suitable one; PYTHON=… chooses another.
PYTHON ?= $(shell for p in python3.14 python3.13 python3.12 python3.11 python3; do \
	  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done)
KEEP   ?=
ARGS   ?=
# Processes of the test run, each with a control plane of its own: the tests wait far more than they work.
WORKERS ?= 3
PARALLEL = -n $(WORKERS) --dist loadfile

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1|\2/' | column -t -s'|' 2>/dev/null \
	  || grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST)

.PHONY: venv
venv: $(STAMP) ## Make the virtual environment with everything pinned

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer found: install one, or name it: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make virtual environments: install its venv package (Debian: apt-get install python3-venv)" >&2; exit 1; }
	@test -x $(BIN)/python || { rm -rf $(VENV); $(PYTHON) -m venv $(VENV); }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --retries 10 -c constraints.txt -e '.[dev]'
	@touch $@

.PHONY: lint
lint: venv ## Lint, check the format, types and import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy operator tests
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/lint-imports

.PHONY: unit
unit: venv ## Unit and model tests: no cluster
	$(BIN)/python -m pytest tests/unit tests/model $(ARGS)

.PHONY: cluster
cluster: venv ## Cluster tests on a real control plane, without the long suites
	$(BIN)/python -m pytest tests/cluster -m 'not slow' $(PARALLEL) $(ARGS)

.PHONY: test
test: lint ## Everything but the long suites: linters, unit, model and cluster tests
	$(BIN)/python -m pytest tests -m 'not slow' $(PARALLEL) $(ARGS)

.PHONY: chaos
chaos: venv ## 20 rollouts whose operator is killed at random moments
	$(BIN)/python -m pytest tests/cluster/chaos -m slow -s $(ARGS)

.PHONY: hostile
hostile: venv ## 100 runs under blows that free devices without proof, with holds and without
	$(BIN)/python -m pytest tests/cluster/hostile -m slow -s $(ARGS)

.PHONY: walks
walks: venv ## 200 random walks over a model of the cluster, then 20 on a real control plane
	$(BIN)/python -m pytest tests/model tests/cluster/walks -m slow -s -p no:randomly $(ARGS)

.PHONY: observe
observe: venv ## What others see: Prometheus on real rollouts, and GitOps tools on the states that the other suites give
	$(BIN)/python -m pytest tests/unit/monitoring tests/unit/app/test_metrics.py -q
	$(BIN)/python -m pytest tests/cluster/observe -m slow -s -p no:randomly $(ARGS)

.PHONY: dashboards
dashboards: venv ## Generate what deploy/monitoring/build.py makes
	$(BIN)/python deploy/monitoring/build.py

.PHONY: bench
bench: venv ## Measure: ours against native, latency, writes, memory, start-up
	$(BIN)/python -m bench $(ARGS)

.PHONY: demo
demo: venv ## The main job on a real control plane; KEEP=1 leaves it up
	KEEP=$(KEEP) $(BIN)/python -m lab.demo $(ARGS)

.PHONY: crds
crds: venv ## Generate crds/ from the models
	$(BIN)/python -m accelerator_rollout.api.crd --write

.PHONY: lab-up
lab-up: venv ## Start a control plane in the background
	$(BIN)/python -m lab up --detach $(ARGS)

.PHONY: lab-down
lab-down: venv ## Stop it
	$(BIN)/python -m lab down $(ARGS)

.PHONY: node-up
node-up: venv ## Start a control plane with a real node (containerd, kubelet) in the background; needs root on Linux
	$(BIN)/python -m lab.realnode up --detach $(ARGS)

.PHONY: node-down
node-down: venv ## End both
	$(BIN)/python -m lab.realnode down $(ARGS)

.PHONY: node-test
node-test: venv ## Scenarios on a real node: real processes on devices; needs root on Linux
	$(BIN)/python -m pytest tests/node -p no:randomly $(ARGS)

.PHONY: clean
clean: ## Remove the virtual environment and caches of the tools; the built control plane stays
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
