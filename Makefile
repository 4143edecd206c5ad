# The two commands of the README. Each makes .venv where there is none, and is quick when nothing has changed.
PYTHON ?= python3
VENV := .venv
INSTALLED := $(VENV)/installed
export TOKENIZERS_PARALLELISM ?= true

.PHONY: demo test lint clean

demo: $(INSTALLED)
	$(VENV)/bin/python examples/demo.py

test: $(INSTALLED)
	$(VENV)/bin/python -m pytest -n 2

lint: $(INSTALLED)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

$(INSTALLED): setup.cfg pyproject.toml constraints.txt
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test]'
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis *.egg-info build dist
