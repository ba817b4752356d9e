# Everything that people and CI run; whatever needs more than three lines lives in scripts/.
.DEFAULT_GOAL := help
SHELL := /bin/bash
V := .venv/bin
STAMP := .venv/.setup-stamp
TESTS ?=

.PHONY: help setup demo test test-e2e test-faults test-slow bench coverage fmt lint types \
	gen gen-check proto-lint proto-breaking proto-baseline lock helm-test docs docs-check wheel image ci

help: ## List what can be made
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Create .venv from the lock file and install turnwire into it

$(STAMP): pyproject.toml requirements-dev.lock scripts/setup.sh
	@scripts/setup.sh
	@touch $@

demo: setup ## Run one turn from end to end, without any key
	@$(V)/python examples/demo/run.py

test: setup ## Run the test suite; TESTS="path -k word" narrows it
	$(V)/python -m pytest $(TESTS)

test-e2e: setup ## Run the tests that start real processes
	$(V)/python -m pytest tests/e2e -m "not slow" $(TESTS)

FAULTS_RUNS ?= 30

test-faults: setup ## Run the fault tests, slow ones too; FAULTS_RUNS=1000 for more random kills
	FAULTS_RUNS=$(FAULTS_RUNS) $(V)/python -m pytest tests/faults -m "slow or not slow" $(TESTS)

test-slow: setup ## Run the tests that the default suite leaves out
	$(V)/python -m pytest -m slow $(TESTS)

coverage: setup ## Run the test suite and report branch coverage
	@scripts/coverage.sh $(TESTS)

bench: setup ## Measure the services beside the floors; ARGS="--help" lists the options
	$(V)/python -m bench $(ARGS)

fmt: setup ## Format Python and proto files
	$(V)/ruff format . && $(V)/ruff check --fix-only --quiet .
	$(V)/buf format -w

lint: setup ## Check Python style and formatting
	$(V)/ruff check .
	$(V)/ruff format --check .

types: setup ## Check types, strictly
	$(V)/mypy

gen: setup ## Generate services/turnwire/api from protos/
	$(V)/python scripts/gen.py

gen-check: setup ## Fail when the generated code is not what the protos say
	$(V)/python scripts/gen.py --check

proto-lint: setup ## Lint the protos and check their format
	$(V)/buf lint
	$(V)/buf format -d --exit-code

proto-breaking: setup ## Fail when a proto breaks the frozen contract
	@scripts/proto_breaking.sh

proto-baseline: setup ## Freeze the contract as it is; only at a release
	$(V)/buf build protos -o protos/baseline.binpb

lock: setup ## Resolve the lock files anew
	@scripts/lock.sh

helm-test: setup ## Lint the chart, render it and test what it renders
	@scripts/helm_test.sh

docs: setup ## Generate the pages that come from the code
	$(V)/python scripts/docs.py

docs-check: setup ## Fail when a generated page is stale or a link is dead
	$(V)/python scripts/docs.py --check

wheel: setup ## Build the wheel and the sdist into dist/
	$(V)/python -m hatchling build

image: ## Build the container image; IMAGE=name:tag
	docker build --tag $(or $(IMAGE),turnwire:dev) .

ci: ## Run what CI runs
	@bash .ci/run
