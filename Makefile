# The two commands of the README are demo and test. Each makes .venv where there is none, and is quick when nothing has
# changed.
PYTHON ?= python3
VENV := .venv
INSTALLED := $(VENV)/installed

.PHONY: demo test test-common lint clean

demo: $(INSTALLED)
	$(VENV)/bin/python examples/demo.py

test: $(INSTALLED)
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n 2

# transformers' own tests of models and tokenizers, on ours.
test-common: $(INSTALLED)
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -o addopts=-q tests/common

lint: $(INSTALLED)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

$(INSTALLED): setup.cfg pyproject.toml constraints.txt
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test]'
	touch $@

clean:
	rm -rf $(VENV) .cache .pytest_cache .ruff_cache .hypothesis *.egg-info build dist
