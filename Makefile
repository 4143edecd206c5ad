# The two commands of the README are demo and test. Each makes .venv where there is none, and is quick when nothing has
# changed.
PYTHON ?= python3
VENV := .venv
# The versions that pip may not leave; CONSTRAINTS=/dev/null installs the newest of everything.
CONSTRAINTS ?= constraints.txt
# Stamps, one for each set of extras that is installed in .venv.
PACKAGE := $(VENV)/package
TOOLS := $(VENV)/tools
RAY := $(VENV)/ray
BROWSER := $(VENV)/browser
DIST := $(VENV)/dist
SITE := $(VENV)/site
STAMPS := $(PACKAGE) $(TOOLS) $(RAY) $(BROWSER) $(DIST) $(SITE)

ROOMS := modeling_roformer tokenization model_cards conversion training serving

.PHONY: demo test test-random test-slow test-ray test-page test-js test-common examples lint contracts dist site clean

demo: $(PACKAGE)
	$(VENV)/bin/python examples/demo.py

test: $(TOOLS)
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n 2

# New examples for the property tests, 20 times as many as `test` draws, which are the same ones in every run.
test-random: $(TOOLS)
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n 2 -m 'hypothesis and not js and not ray and not page' --hypothesis-profile=random

# The rest of them, which compile, export, or start processes, and take half of the time.
test-slow: $(TOOLS)
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n 2 -m slow

# Those that need Ray, one after the other: each has all cores.
test-ray: $(RAY)
	$(VENV)/bin/python -m pytest -m ray

# The page in a headless Chromium, which the system's package manager installs: `apt-get install chromium fonts-noto-cjk`.
test-page: $(BROWSER)
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -rs -m page tests/serving

# transformers' own tests of models and tokenizers, on ours.
test-common: $(TOOLS)
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -o addopts=-q tests/common

# Exported folders in transformers.js, under Node; its package is fetched once, into .cache/.
JS := .cache/transformers.js
test-js: $(TOOLS)
	@if command -v npm > /dev/null && ! test -d $(JS)/node_modules; then \
		echo "installing transformers.js into $(JS)"; mkdir -p $(JS) \
		&& npm install --prefix $(JS) --ignore-scripts --no-audit --no-fund --loglevel=error @huggingface/transformers@4.3.1; fi
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -m js -rs

# Every example in a setting of seconds.
examples: $(TOOLS)
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" bash examples/run_all.sh

lint: $(TOOLS) contracts
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
# The files that only GitHub runs or reads, against copies of their schemas that come with check-jsonschema.
	$(VENV)/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(VENV)/bin/check-jsonschema --builtin-schema custom.github-workflows-require-timeout .github/workflows/*.yml
	$(VENV)/bin/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/bug.yml .github/ISSUE_TEMPLATE/feature.yml
	$(VENV)/bin/check-jsonschema --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(VENV)/bin/check-jsonschema --builtin-schema vendor.citation-file-format --force-filetype yaml CITATION.cff

contracts: $(TOOLS)
# The contracts of pyproject.toml, on an ordinary installation: in an editable one import-linter does not see every room.
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && mkdir "$$folder/tree" \
	&& cp -r setup.cfg pyproject.toml README.md LICENSE $(ROOMS) "$$folder/tree" \
	&& $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-index --no-deps --no-build-isolation \
		--target "$$folder/site" "$$folder/tree" \
	&& cd "$$folder" && PYTHONPATH="$$folder/site" '$(CURDIR)/$(VENV)/bin/lint-imports' --no-cache --config '$(CURDIR)/pyproject.toml'

# The sdist and the wheel, in dist/. Nothing is uploaded. With TAG=v1.2.3, the version must be 1.2.3.
dist: $(DIST)
	rm -rf dist
	$(VENV)/bin/python -m build --quiet --no-isolation
	$(VENV)/bin/twine check --strict dist/*
	@test -z "$$TAG" || test -f "dist/modeling_roformer-$${TAG#v}.tar.gz" \
	|| { echo "the tag $$TAG is not the version in modeling_roformer/__init__.py" >&2; exit 1; }

# docs/ and an API reference as a web site, in build/site. A broken link or anchor fails.
site: $(SITE)
	$(VENV)/bin/mkdocs build --strict
	$(VENV)/bin/python -m pytest -m site tests/test_site.py

# The package in .venv is this tree, unless something else was installed over it (`pip install .`) or the clone was moved.
# Then it is installed anew. Asked from another folder, since a Python that is started here finds the tree in any case.
FIND := from importlib.util import find_spec; print(find_spec("modeling_roformer").origin)
FOUND := $(shell cd / && '$(CURDIR)/$(VENV)/bin/python' -c '$(FIND)' 2>/dev/null)
ifneq ($(FOUND),$(CURDIR)/modeling_roformer/__init__.py)
.PHONY: $(STAMPS)
endif

$(TOOLS): EXTRA := [test]
$(RAY): EXTRA := [test,ray]
$(BROWSER): EXTRA := [test,page,browser]
$(DIST): EXTRA := [test,dist]
$(SITE): EXTRA := [test,site]
$(STAMPS): setup.cfg pyproject.toml constraints.txt
	@echo "installing into $(VENV), which takes a few minutes where it is new"
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint '$(CONSTRAINTS)' --editable '.$(EXTRA)'
	@touch $(PACKAGE) $@

clean:
	rm -rf $(VENV) .cache .pytest_cache .ruff_cache .hypothesis *.egg-info build dist
