# Every target installs what it needs into .venv by itself, and is quick when nothing changed.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help install up savings test test-all lab-test soak net check types rules format openapi bench release lock clean kubernetes ray kube-conformance

PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3,$(shell command -v $(name))))
BIN := .venv/bin
SYNC := $(PYTHON) scripts/sync.py
ARGS ?=
# Tests at once: a number, or `cores` for one on each.
WORKERS ?= cores

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

install: ## everything for development, into .venv
	@$(SYNC) dev
	@$(BIN)/python scripts/compile.py install

up: ## a control plane with its own Postgres, here and now; Ctrl-C ends it; ARGS='--port 9000'
	@$(SYNC) up
	@$(BIN)/python scripts/compile.py up & exec $(BIN)/gpuwright up $(ARGS)

savings: ## what gpuwright would save on simulated fleets, beside four other ways, in about a minute
	@$(SYNC) up
	@$(BIN)/gpuwright bench savings $(ARGS)

# Naming tests runs all of them, slow ones too, in their everyday form.
FAST = $(if $(filter tests% lab%,$(ARGS)),,GPUWRIGHT_FAST=1)

test: install ## the tests that need little, one on each core; ARGS='tests/cli -x' for all tests there, WORKERS=0 for one after the other
	@$(FAST) $(BIN)/pytest --workers=$(WORKERS) --meter=.pytest_cache/costs.jsonl $(ARGS)

test-all: install ## all tests in their everyday form; fails a test that costs more than its mark says, and a run over its budget
	@$(BIN)/pytest --workers=$(WORKERS) --meter=.pytest_cache/costs.jsonl --limits=5000 $(ARGS)

lab-test: install ## the tests of lab/, which `make test` leaves out
	@$(BIN)/pytest --workers=$(WORKERS) lab/tests $(ARGS)

kubernetes: install ## an API server of Kubernetes and what belongs to it, built by Go into ~/.cache, for tests; ARGS=keda builds KEDA
	@$(BIN)/python -m scripts.kubernetes $(ARGS)

ray: install ## Ray Serve from PyPI in an environment of its own below ~/.cache, for tests
	@$(BIN)/python -m tests.ray_serve.installed

kube-conformance: install ## on the cluster of your KUBECONFIG: the tests of tests/kubernetes that need no API server of their own, in namespaces of their own, and a pod as copies are on each node with an agent
	@GPUWRIGHT_KUBE_CONFORMANCE=1 $(BIN)/pytest tests/kubernetes tests/kubernetes/on_nodes.py $(ARGS)

soak: install ## the tests in their long forms
	@GPUWRIGHT_SOAK=1 $(BIN)/pytest --timeout 3600 $(ARGS)

net: install ## ask the recorded questions again and compare with the recorded answers; ARGS=family-A for some of them, ARGS=--time for CPU seconds
	@$(BIN)/python -m tests.net $(ARGS)

check: types rules ## what CI runs besides the tests: lint, types, imports, contract, pages, migrations, leaks; -j2 takes two at once

types: install
	@$(BIN)/mypy

rules: install
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python scripts/leaks.py
	@$(BIN)/python scripts/openapi.py --check
	@$(BIN)/python scripts/reference.py --check
	@$(BIN)/python scripts/monitoring.py --check
	@$(BIN)/python scripts/pages.py --check
	@$(BIN)/python -m scripts.house
	@$(BIN)/pytest -q tests/migrations

format: install ## ruff's formatting and safe fixes
	@$(BIN)/ruff check --fix-only --quiet
	@$(BIN)/ruff format

openapi: install ## write openapi/openapi.json, the reference pages and what monitors from the code
	@$(BIN)/python scripts/openapi.py
	@$(BIN)/python scripts/reference.py
	@$(BIN)/python scripts/monitoring.py
	@$(BIN)/python scripts/pages.py

bench: install ## node reports by 1,000 agents for a minute; prints reports per second and percentiles
	@$(BIN)/gpuwright bench api --agents 1000 --seconds 60 $(ARGS)

release: install ## wheel, sdist, lists of contents, provenance and sums of a tag; ARGS='v0.1.0 dist --key KEY --images'
	@$(BIN)/python -m scripts.release $(ARGS)

lock: install ## compile requirements/*.txt again; UPGRADE=1 takes the newest versions
	@scripts/lock.sh

clean: ## remove what make made; keeps data in .gpuwright
	@rm -rf .venv .venv.lock build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -path ./.gpuwright -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
