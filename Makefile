# Everything runs in a virtual environment that these targets make; nothing but Python 3.11 or later is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# The tests of mathematics, algorithms and metrics, which run a second time interpreted: coverage sees inside kernels.
INTERPRETED := $(addprefix tests/test_,$(addsuffix .py,adahedge adaptive adversaries alpha alpha_change arms cholesky \
	conformance edges_policies errata events evaluation evaluation_available features golden grouped groups learning_once \
	math metrics offline offline_alpha offline_groups policies run simulation snapshots streams welfare welfare_metrics))

# The tests that take longest; `make check` leaves them out.
LONG := $(addprefix --ignore=tests/test_,$(addsuffix .py,abuse adaptive_theory alpha_oracle arena arms browser conformance docs drill \
	edges_evaluation edges_policies engine_copies engine_crashes engine_expiry engine_faults engine_memory engine_model \
	evaluation evaluation_available experiments features frontier full_disk fuzz_http fuzz_settings grouped redraws \
	report results \
	service_access service_connections service_limits service_process service_schema start))

PYTEST := $(BIN)/python -m pytest -q -n 2 --dist loadfile

.PHONY: run serve check test bench lint lock sbom clean

run: $(VENV)/installed-lab
	$(BIN)/alphafair reproduce

# The service, and a shop whose visitors use it; Ctrl-C stops the service too.
serve: $(VENV)/installed-service
	$(BIN)/python examples/shop/run.py

# In two minutes, once kernels are compiled: a representative part of the tests, style and types.
check: $(VENV)/installed-test
	$(BIN)/python -m tests.kernels
	$(PYTEST) $(LONG)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: $(VENV)/installed-test $(VENV)/installed-generators
	$(BIN)/python -m tests.kernels
	$(PYTEST)
	NUMBA_DISABLE_JIT=1 $(PYTEST) -m "not compiled" $(INTERPRETED) \
		--cov=alphafair --cov-branch --cov-report=
	$(BIN)/coverage report --fail-under=100 --include="*/alphafair/math/*,*/alphafair/algorithms/*,*/alphafair/offline/*,*/alphafair/policy/memory.py,*/alphafair/metrics.py"
	$(MAKE) --no-print-directory lint

bench: $(VENV)/installed-bench
	$(BIN)/python -m benchmarks

lint: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_pins.py

# The versions and hashes that the image is built from, renewed; SBOM: what they are, in CycloneDX's form.
COMPILE := $(BIN)/uv pip compile --quiet --upgrade --universal --generate-hashes --python-version 3.11 --no-header

lock: $(VENV)/installed-lock
	$(COMPILE) requirements/build.in --output-file requirements/build.txt > /dev/null
	$(COMPILE) pyproject.toml --extra service --extra postgres \
		--no-emit-package alphafair-client --output-file requirements/service.txt > /dev/null

sbom: $(VENV)/installed-lock
	mkdir -p dist
	$(BIN)/cyclonedx-py requirements requirements/service.txt --pyproject pyproject.toml --output-reproducible \
		--output-file dist/sbom.json

clean:
	rm -rf $(VENV) output report arena dist build htmlcov .pytest_cache .mypy_cache .ruff_cache .hypothesis \
		.import_linter_cache .coverage*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# What an extra of pyproject.toml installs: lab, service, test or bench.
$(VENV)/installed-%: pyproject.toml client/pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --disable-pip-version-check --editable ".[$*]"
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps --editable ./client
	touch $@

# What generates clients from OpenAPI, for a test: apart, because it needs an older typer than the command line has.
GENERATORS := $(VENV)/generators

$(VENV)/installed-generators: | $(VENV)/bin/python
	$(PYTHON) -m venv $(GENERATORS)
	$(GENERATORS)/bin/python -m pip install --disable-pip-version-check --quiet \
		datamodel-code-generator==0.89.0 openapi-python-client==0.29.1
	if command -v npm > /dev/null; then npm install --prefix $(GENERATORS) --ignore-scripts --no-audit --no-fund --silent \
		openapi-typescript@7.13.0 typescript@5.9.3; fi
	touch $@

$(VENV)/installed-lock: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --disable-pip-version-check "uv>=0.9" "cyclonedx-bom>=7"
	touch $@
