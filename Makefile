# Everything runs in a virtual environment that these targets make; nothing but Python 3.11 or later is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Files are not divided among workers, which would make their fixtures twice; the longest come first.
PYTEST := $(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: run serve docs docs-serve check test pythons soak bench lint lock sbom dist clean

run: $(VENV)/installed-lab
	$(BIN)/alphafair reproduce

# The service, and a shop whose visitors use it; Ctrl-C stops the service too.
serve: $(VENV)/installed-service
	$(BIN)/python examples/shop/run.py

# The site, from docs/ and the code: nothing is fetched, and a warning is an error.
docs: $(VENV)/installed-docs
	$(BIN)/python -m sphinx -W --keep-going -q -d docs/_build/doctrees docs docs/_build/html
	@echo "The site is in docs/_build/html; make docs-serve opens it."

docs-serve: docs
	$(BIN)/python tools/serve_docs.py

# In two minutes: the fast tests of what has changed, style and types.
check: $(VENV)/installed-test
	$(BIN)/python -m tests.kernels
	$(PYTEST) -p tests.quick --quick
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: $(VENV)/installed-test $(VENV)/installed-generators
	$(BIN)/python -m tests.kernels
	$(PYTEST)
	$(BIN)/python -m tests.interpreted
	$(MAKE) --no-print-directory lint

# What is published, installed into bare environments on every Python that is found, with each extra, and the quick part of
# the suite there. PYTHONS="3.12 3.13" and ONLY="base suite" for some of it.
pythons: $(VENV)/installed-test
	$(BIN)/python -m tests.wheels $(if $(PYTHONS),--python $(PYTHONS)) $(if $(ONLY),--only $(ONLY))

# Weekly and before a release: the tests at full sizes, random searches, fuzzing on both stores, and the seeded faults.
SECONDS ?= 600
SEED ?= 1

soak: $(VENV)/installed-test $(VENV)/installed-generators
	$(BIN)/python -m tests.kernels
	ALPHAFAIR_TESTS=full $(PYTEST)
	$(BIN)/python -m tests.interpreted --all
	$(BIN)/python -m tests.search_policies --seconds $(SECONDS)
	$(BIN)/python -m tests.search_evaluation --seconds $(SECONDS)
	$(BIN)/python -m tests.fuzz_http --requests 1000000 --seed $(SEED)
	$(BIN)/python -m tests.fuzz_settings --seconds $(SECONDS) --seed $(SEED)
	$(BIN)/python -m tests.fuzz_settings --seconds $(SECONDS) --seed $(SEED) --postgres
	$(BIN)/python -m tests.seeded
	$(BIN)/python -m tests.seeded --random 100 --seed $(SEED)

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

# What is published, in dist/, checked; with TAG=v1.0.0 also whether that is this version and CHANGELOG.md has it.
dist: $(VENV)/installed-test
	$(BIN)/python tools/build_release.py $(if $(TAG),--tag $(TAG))

clean:
	rm -rf $(VENV) output report arena notions dist build htmlcov .pytest_cache .mypy_cache .ruff_cache .hypothesis \
		docs/_build docs/_generated docs/examples docs/reference/names \
		.import_linter_cache .coverage*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# What an extra of pyproject.toml installs: lab, service, docs, test or bench.
$(VENV)/installed-%: pyproject.toml client/pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --disable-pip-version-check --editable ".[$*]"
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps --editable ./client
	touch $@

# What generates clients from OpenAPI, for a test: apart, because it needs an older typer than the command line has; and
# OpenTelemetry, which the service and the clients use where it is installed.
GENERATORS := $(VENV)/generators

$(VENV)/installed-generators: | $(VENV)/bin/python
	$(PYTHON) -m venv $(GENERATORS)
	$(GENERATORS)/bin/python -m pip install --disable-pip-version-check --quiet \
		datamodel-code-generator==0.89.0 openapi-python-client==0.29.1 opentelemetry-sdk==1.30.0
	if command -v npm > /dev/null; then npm install --prefix $(GENERATORS) --ignore-scripts --no-audit --no-fund --silent \
		openapi-typescript@7.13.0 typescript@5.9.3; fi
	touch $@

$(VENV)/installed-lock: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --disable-pip-version-check "uv>=0.9" "cyclonedx-bom>=7"
	touch $@
