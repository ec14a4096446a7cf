# Two commands set everything up: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: demo test test-ray lint bench clean

demo: $(VENV)/.installed
	$(BIN)/upside train upside --env bottleneck-maze --seed 0 --max-interactions 250000 --run-dir runs/demo --overwrite

test: $(VENV)/.dev lint
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test-ray: $(VENV)/.dev
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[ray]'
	$(BIN)/python -m pytest tests/test_ray.py

lint: $(VENV)/.dev
	$(BIN)/ruff check upside tests results examples
	$(BIN)/ruff format --check upside tests results examples
	$(BIN)/mypy

bench: $(VENV)/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[bench]'
	$(BIN)/upside bench

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "upside needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	touch $@

$(VENV)/.dev: $(VENV)/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info
