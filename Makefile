# `make help` lists the commands. The only prerequisites are make and Python 3.11 or newer with venv.

VENV ?= .venv
EXTRAS ?= embedded server client rq models data blob otel django ray dev
PYTHON ?=
POSTGRES ?=
# Two for each core: many tests wait for processes and leases rather than compute.
PROCESSES ?= $(shell expr 2 '*' $$(nproc 2>/dev/null || echo 2))
BIN = $(VENV)/bin
PYTEST = $(BIN)/python -m pytest
PARALLEL = -n $(PROCESSES) --dist worksteal

# A different interpreter, different extras, a moved clone or a changed input file make a new set-up necessary.
FINGERPRINT := $(shell printf '%s|%s|%s' "$(CURDIR)" "$(PYTHON)" "$(EXTRAS)" | cksum | cut -d' ' -f1)
READY = $(VENV)/.ready-$(FINGERPRINT)

# Each of the thousands of interpreters that tests start would compile hundreds of modules without bytecode on disk. An
# empty value is the same as none.
export PYTHONDONTWRITEBYTECODE =

.DEFAULT_GOAL := help
.PHONY: help setup demo up test explore check format bench chaos scale constraints schema freeze clean

help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-20s %s\n", $$1, $$2 }'

$(READY): pyproject.toml constraints.txt tools/setup.py tools/find-python hatch_build.py src/holdfast/domain/_plain.c
	@python=$$(PYTHON='$(PYTHON)' sh tools/find-python) && "$$python" tools/setup.py '$(VENV)' $(EXTRAS)
	@rm -f $(VENV)/.ready-* && touch $@

setup: $(READY) ## create .venv with all dependencies, at pinned and hashed versions

demo: $(READY) ## show the main use case end to end, on the embedded Postgres
	@$(BIN)/holdfast demo

up: $(READY) ## start everything and keep running
	@$(BIN)/holdfast up

# Tests of Ray mostly wait: two processes, each with a Ray cluster of its own, run them at the same time as the others.
test: $(READY) ## run every test; POSTGRES=15 uses Debian's PostgreSQL 15 with its default settings instead of the embedded one
	@$(if $(POSTGRES),$(BIN)/python tools/with-postgres $(POSTGRES)) $(if $(TESTS),$(PYTEST) $(PARALLEL) $(ARGS) $(TESTS),\
		$(BIN)/python tools/together $(PYTEST) -n 2 --dist worksteal -o cache_dir=.pytest_cache/ray $(ARGS) tests/ray \
		-- $(PYTEST) $(PARALLEL) $(ARGS) tests --ignore tests/ray)

explore: $(READY) ## test every interleaving of every pair of operations, with a crash at every point, and of some triples; takes hours
	@$(PYTEST) $(PARALLEL) --explore=full -q $(ARGS) tests/explore/test_pairs.py tests/explore/test_jobs.py \
		tests/explore/test_jobs_mixes.py

check: $(READY) ## check format, lint, strict types, import direction, and that released migrations are unchanged
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy --strict src tests/typing
	@$(BIN)/basedpyright -p tests/typing --pythonpath $(BIN)/python
	@$(BIN)/lint-imports
	@$(BIN)/python tools/freeze-migrations --check

format: $(READY) ## reformat the code, and fix what ruff can fix
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(READY) ## run the benchmarks against peers
	@$(BIN)/python -m bench --full $(ARGS)

chaos: $(READY) ## run ten minutes of faults under load: kills, freezes, crashes, failovers (ARGS="--seed 1")
	@$(BIN)/python -m tests.chaos $(ARGS)

scale: $(READY) ## run the tests of jobs and recovery at full size
	@JOBS_SCALE=full $(PYTEST) -s tests/integration/test_jobs_scale.py \
		tests/integration/test_recovery.py tests/integration/test_recovery_database.py \
		tests/integration/test_worker_crowd.py $(ARGS)

# This does not depend on set-up, which fails if constraints.txt is incomplete.
constraints: ## rewrite constraints.txt from pyproject.toml (ARGS=--upgrade for newer versions)
	@test -x .venv-uv/bin/uv || { python=$$(PYTHON='$(PYTHON)' sh tools/find-python) && "$$python" -m venv .venv-uv \
		&& .venv-uv/bin/python -m pip install -qq uv; }
	@.venv-uv/bin/uv pip compile pyproject.toml --extra all --extra dev --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-header --quiet $(ARGS) --output-file constraints.txt

schema: $(READY) ## rewrite src/holdfast/sql/schema.txt, after a change of a migration
	@$(BIN)/python tools/dump-schema

freeze: $(READY) ## for a release: record the hashes of new migrations, which must not change afterwards
	@$(BIN)/python tools/freeze-migrations

clean: ## remove everything that make created, except data in .holdfast and artifacts
	@rm -rf $(VENV) .venv311 .venv-uv dist build .bench .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@rm -f src/holdfast/domain/*.so
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
