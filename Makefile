# Everything a developer does, from a fresh clone on. `make help` lists it.

PYTHON := .venv/bin/python
# The tests start hundreds of processes: each would compile all it imports
unexport PYTHONDONTWRITEBYTECODE
# Test processes, and anything more for pytest: make test JOBS=4 ARGS="-k commit". Three keep two cores busy: a test waits
# for servers, other processes and locks a third of its time.
JOBS ?= 3
ARGS ?=
# Another DuckDB than the pinned one for `make test`: make test DUCKDB=2.0.0
DUCKDB ?=
# The version for `make test-spark`: the packages of .venv, with another pyspark before them
SPARK ?= 4.3.0
# How much `make prove` does: make prove KILLS=10000 PAIRS=all TRANSACTIONS=20000 STORMS=1000 MIXED=2000 STATEMENTS=100000 OUTAGES=2000 VIEWS=2000 SPARK_VIEWS=200 STREAMS=100 DEATHS=5000 EXPRESSIONS=50000 SOAK=600 COPIES=1000 PUBLISHES=500 PIPELINES=all MESSAGES=1000000 MESSAGE_KILLS=500 SEED=7
KILLS ?= 500
PAIRS ?= 200
TRANSACTIONS ?= 1000
STORMS ?= 60
MIXED ?= 20
STATEMENTS ?= 4000
OUTAGES ?= 80
VIEWS ?= 20
SPARK_VIEWS ?= 0
STREAMS ?= 6
DEATHS ?= 500
EXPRESSIONS ?= 2000
SOAK ?= 60
COPIES ?= 60
PUBLISHES ?= 20
# Kills of pipelines at points of a batch, or all; and kills among so many messages through one
PIPELINES ?= 40
MESSAGES ?= 20000
MESSAGE_KILLS ?= 10
# The samples that `make test` takes, by default of those that CI proved for this commit; and another round of `make prove`
SEED ?=
# all: `make test` takes every test function
FUNCTIONS ?=
# 2/5: `make test-all` takes the second of five parts
SHARD ?=
# How the tests run: units in JOBS processes (tests/scheduling.py), samples by the seed (tests/seeds.py)
PYTEST = $(if $(SEED),QUACKLAKE_TEST_SEED=$(SEED)) $(if $(FUNCTIONS),QUACKLAKE_TEST_PROFILE=functions) $(PYTHON) -m pytest -n $(JOBS) --dist loadscope --durations 20 --durations-min 2
EVERYTHING = QUACKLAKE_TEST_PROFILE=long QUACKLAKE_TEST_RESUME=$(CURDIR)/.venv/passed $(if $(SHARD),QUACKLAKE_TEST_SHARD=$(SHARD))

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all test-spark test-hudi test-jars test-dbt test-sqlalchemy test-dagster test-airflow test-newest prove check web bench yardstick docs clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/.stamp ## Create .venv with pinned packages and the servers the tests use
	@:

demo: setup ## Show everything at once: streams, tenants, sensors, a dashboard and a kill; ARGS=--stay to look around
	$(PYTHON) -m services.demo $(ARGS)

test: setup .venv/datafusion .venv/dbt .venv/dlt $(if $(DUCKDB),.venv/duckdb-$(DUCKDB)) ## Run a sample of the tests that CI proved for this commit, or another: SEED=7, FUNCTIONS=all, DUCKDB=2.0.0
	@$(PYTHON) -m services install
	$(if $(DUCKDB),PYTHONPATH=$(CURDIR)/.venv/duckdb-$(DUCKDB)) $(PYTEST) $(ARGS)

test-all: setup .venv/datafusion .venv/dbt .venv/dlt ## Run every test there is, on plain lakes and on shared ones: hours; goes on after an interruption, SHARD=2/5 takes a part
	@$(PYTHON) -m services install
	$(EVERYTHING) $(PYTEST) $(ARGS)
	$(EVERYTHING) QUACKLAKE_TEST_LAYOUT=shared $(PYTEST) $(ARGS)

test-spark: setup .venv/spark-$(SPARK) ## Run the tests of Spark on another version of it: SPARK=4.0.5
	PYTHONPATH=$(CURDIR)/.venv/spark-$(SPARK) $(PYTHON) -m pytest tests/spark $(ARGS)

test-hudi: setup .venv/spark-3.5.9 ## Run the tests of Hudi, with the Spark that its jar can be had for; `make test` then runs them, too
	$(PYTHON) -m pytest tests/connectors/test_hudi_source.py tests/connectors/test_hudi_sink.py $(ARGS)

test-jars: setup .venv/thrift ## Run the tests against Kafka, catalogs of Iceberg and Flight's JDBC driver, whose jars come from Maven; `make test` then runs them, too
	$(PYTHON) -m services install jars
	$(PYTHON) -m pytest tests/connectors/test_iceberg_servers.py tests/pipelines/test_spark_kills.py tests/service/flight/test_jdbc.py $(ARGS)

test-dbt: setup .venv/dbt ## Run dbt's own suite for adapters, and print which share of it passes
	$(PYTHON) -m tests.suites dbt

test-sqlalchemy: setup ## Run SQLAlchemy's own suite for dialects, and print which share of it passes
	$(PYTHON) -m tests.suites sqlalchemy

test-dagster: setup .venv/dagster ## Install Dagster, and run the example for it; `make test` then runs it, too
	$(PYTHON) -m pytest tests/schedulers/test_dagster.py $(ARGS)

test-airflow: setup .venv/airflow ## Install Airflow, and run the tests of the provider for it; `make test` then runs them, too
	$(PYTHON) -m pytest tests/schedulers/test_airflow.py $(ARGS)

test-newest: setup ## Install the wheel with the newest of everything, and look at each part
	$(PYTHON) -m tests.newest $(ARGS)

prove: setup ## Kill, race and starve lakes for as long as you like, and look for anomalies
	@$(PYTHON) -m services install
	$(PYTHON) -m tests.prove --kills $(KILLS) --pairs $(PAIRS) --transactions $(TRANSACTIONS) --storms $(STORMS) --mixed $(MIXED) \
		--statements $(STATEMENTS) --outages $(OUTAGES) --views $(VIEWS) --spark-views $(SPARK_VIEWS) --streams $(STREAMS) --deaths $(DEATHS) --expressions $(EXPRESSIONS) --soak $(SOAK) --copies $(COPIES) --publishes $(PUBLISHES) \
		--pipelines $(PIPELINES) --messages $(MESSAGES) --message-kills $(MESSAGE_KILLS) --jobs $(JOBS) $(if $(SEED),--seed $(SEED)) $(ARGS)

check: setup ## Lint, formatting, types, layers, the figures of the structure, and project rules
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports
	$(PYTHON) scripts/measure_structure.py
	$(PYTHON) -m pytest -q tests/test_project.py

web: setup ## Build the dashboard from web/, with Node from the PATH or from a wheel; the outcome is committed
	$(PYTHON) -m services.web

bench: .venv/.stamp-bench ## Measure against other lakehouse libraries
	$(PYTHON) -m benchmarks $(ARGS)

yardstick: setup ## Run the extension's own SQL tests against our SQL: QUACKLAKE_YARDSTICK=<folder test/sql>
	$(PYTHON) -m tests.sqllogic $(ARGS)

docs: setup ## Build the documentation into site/
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict --quiet

clean: ## Remove everything that can be made again
	rm -rf .venv site build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.stamp: pyproject.toml $(wildcard apps/*/pyproject.toml) constraints.txt scripts/setup.sh
	@scripts/setup.sh

.venv/spark-%: | .venv/.stamp
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --target $@ pyspark==$*

.venv/thrift: | .venv/.stamp
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --target $@ thrift==0.25.0

.venv/dbt: integrations/dbt-quacklake/constraints.txt | .venv/.stamp
	@if $(PYTHON) -m pip install --quiet --disable-pip-version-check --no-warn-conflicts --upgrade --target $@ \
		--constraint $< dbt-core dbt-tests-adapter; then touch $@; else echo "dbt cannot be installed: its tests are skipped"; fi

.venv/datafusion: integrations/datafusion-quacklake/constraints.txt | .venv/.stamp
	@if $(PYTHON) -m pip install --quiet --disable-pip-version-check --upgrade --no-deps --target $@ \
		--constraint $< datafusion; then touch $@; else echo "DataFusion cannot be installed: its tests are skipped"; fi

.venv/dlt: integrations/dlt-quacklake/constraints.txt | .venv/.stamp
	@if $(PYTHON) -m pip install --quiet --disable-pip-version-check --no-warn-conflicts --upgrade --target $@ \
		--constraint $< dlt; then touch $@; else echo "dlt cannot be installed: its tests are skipped"; fi

.venv/dagster: integrations/dagster/constraints.txt | .venv/.stamp
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-warn-conflicts --upgrade --target $@ --constraint $< dagster
	@touch $@

.venv/airflow: integrations/airflow-provider-quacklake/constraints.txt | .venv/.stamp
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-warn-conflicts --upgrade --target $@ --constraint $< \
		apache-airflow-core apache-airflow-providers-common-sql apache-airflow-providers-standard
	@touch $@

.venv/duckdb-%: | .venv/.stamp
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-deps --target $@ duckdb==$*

.venv/.stamp-bench: .venv/.stamp
	$(PYTHON) -m pip install --quiet --constraint constraints.txt --build-constraint constraints.txt --editable '.[bench]'
	@touch $@
