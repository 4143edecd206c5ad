# Each target installs what it needs into .venv, once, and again when setup.cfg, pyproject.toml or constraints.txt change.
PYTHON ?= python3
VENV := .venv
# A file of pinned versions; CONSTRAINTS=/dev/null installs the newest version of every dependency.
CONSTRAINTS ?= constraints.txt
# Stamp files, one for each set of extras that is installed in .venv.
PACKAGE := $(VENV)/package
TOOLS := $(VENV)/tools
RAY := $(VENV)/ray
BROWSER := $(VENV)/browser
DIST := $(VENV)/dist
SITE := $(VENV)/site
BENCH := $(VENV)/bench
STAMPS := $(PACKAGE) $(TOOLS) $(RAY) $(BROWSER) $(DIST) $(SITE) $(BENCH)

PIP := $(VENV)/bin/python -m pip --quiet --disable-pip-version-check
# Install packages by uv into the environment $(1), with the arguments $(2). UV_TORCH_BACKEND names an index of its own; where
# that cannot be reached, the torch of the package index is taken.
BY_UV = { $(1)/bin/uv pip install --quiet --python $(1)/bin/python $(2) || { test -n "$$UV_TORCH_BACKEND" && echo "uv failed: \
	the torch of the package index is tried, without UV_TORCH_BACKEND=$$UV_TORCH_BACKEND" >&2 && env -u UV_TORCH_BACKEND \
	$(1)/bin/uv pip install --quiet --python $(1)/bin/python $(2); }; }
# Make a temporary folder, for the commands that follow in the same line of a recipe.
IN_FOLDER = folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT

.PHONY: demo test test-random test-slow test-ray test-page test-js test-common test-clients test-floors test-floors-quick test-newest test-triton test-gpu has-gpu acceptance examples lint ruff schemas repository contracts types dist site figures figures-gpu figures-status clean

demo: $(PACKAGE)
	$(VENV)/bin/python examples/demo.py

test: $(TOOLS)
	@echo "the tests take about 5 minutes on two idle cores; a failure is printed at once"
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n 2 --dist worksteal

# The property tests on new random examples, 20 times as many as in `test`, which draws the same examples in every run.
test-random: $(TOOLS)
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n 2 -m 'hypothesis and not js and not ray and not page and not clients' --hypothesis-profile=random

# The tests that compile, export, train for seconds or start processes. They take longer than the others together.
test-slow: $(TOOLS)
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n 2 --dist worksteal -m slow

# The tests that need Ray, one at a time: each uses all cores.
test-ray: $(RAY)
	$(VENV)/bin/python -m pytest -m ray

# The tests of the page in a headless Chromium: `apt-get install chromium fonts-noto-cjk` installs it.
test-page: $(BROWSER)
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -rs -m page tests/serving

# transformers' own tests of models and tokenizers, run on this package's classes.
test-common: $(TOOLS)
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -o addopts=-q tests/common

# The tests of exported folders in transformers.js on Node. Its package is downloaded once, into .cache/.
JS := .cache/transformers.js
test-js: $(TOOLS)
	@if command -v npm > /dev/null && ! test -d $(JS)/node_modules; then \
		echo "installing transformers.js into $(JS)"; mkdir -p $(JS) \
		&& npm install --prefix $(JS) --ignore-scripts --no-audit --no-fund --loglevel=error @huggingface/transformers@4.3.1; fi
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -m js -rs

# The tools of docs/serving.md and docs/vectors.md, in an environment of their own: they bring some 300 packages.
CLIENTS := .venv-clients
test-clients: $(CLIENTS)/installed
	OMP_NUM_THREADS=1 $(CLIENTS)/bin/python -m pytest -m clients -rs tests/clients

$(CLIENTS)/installed: WITH := --editable '.[train,embed,sentence-transformers]'
$(CLIENTS)/installed: setup.cfg pyproject.toml constraints.txt tests/clients/requirements.txt
	@echo "installing into $(CLIENTS), which takes a few minutes"
	@test -x $(CLIENTS)/bin/python || $(PYTHON) -m venv $(CLIENTS)
	@$(CLIENTS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement '$(CONSTRAINTS)' uv
	@$(call BY_UV,$(CLIENTS),--constraint '$(CONSTRAINTS)' --requirement tests/clients/requirements.txt $(WITH))
	@touch $@

# The lowest versions that setup.cfg promises, installed by uv into an environment of their own. Those that CONSTRAINTS pins are
# kept: CONSTRAINTS=/dev/null takes the lowest torch too, and UV_TORCH_BACKEND=cpu then saves gigabytes of CUDA on Linux.
FLOORS := .venv-floors
test-floors: test-floors-quick
	OMP_NUM_THREADS=1 $(FLOORS)/bin/python -m pytest -n 2

# The tests of tests/floors.txt, of which every dependency has one, and the test that the installed versions are the lowest.
test-floors-quick: $(FLOORS)/installed
	OMP_NUM_THREADS=1 $(FLOORS)/bin/python -m pytest -n 2 -m '' tests/installation/test_floors.py $$(sed -n 's/^[a-z].* //p' tests/floors.txt)

# The newest of everything, torch too, without the extra `train`, which is bound to older versions: the tests of tests/floors.txt
# that do not need it, in an environment of their own. On Linux torch brings 6 GB of CUDA, unless UV_TORCH_BACKEND=cpu is set. Where
# the newest cannot be installed, the versions of CONSTRAINTS are kept.
NEWEST := .venv-newest
test-newest: $(NEWEST)/installed
	OMP_NUM_THREADS=1 $(NEWEST)/bin/python -m pytest -n 2 -m '' $$(sed -n '/extra `train`:/q; s/^[a-z].* //p' tests/floors.txt)

$(FLOORS)/installed: WITH := --resolution lowest-direct --editable '.[test]'
$(NEWEST)/installed: WITH := --editable '.[keras,sentence-transformers,export,embed]' hypothesis pytest pytest-xdist
$(FLOORS)/installed $(NEWEST)/installed: IN_PIP = $(@D)/bin/python -m pip install --quiet --disable-pip-version-check
$(FLOORS)/installed $(NEWEST)/installed: PINNED = $(IN_PIP) --no-deps --requirement '$(CONSTRAINTS)' uv \
	&& $(call BY_UV,$(@D),--constraint '$(CONSTRAINTS)' $(WITH))
$(FLOORS)/installed: INSTALL = $(PINNED)
$(NEWEST)/installed: INSTALL = { $(IN_PIP) uv && $(call BY_UV,$(@D),$(WITH)); } \
	|| { echo "the newest torch was not installed: that of $(CONSTRAINTS) is taken" >&2; $(PINNED); }
$(FLOORS)/installed $(NEWEST)/installed: setup.cfg pyproject.toml constraints.txt
	@echo "installing into $(@D), which takes a minute or two"
	@rm -rf $(@D) && $(PYTHON) -m venv $(@D)
	@$(INSTALL)
	@touch $@

# The tests of the rotary kernel on a CPU, by Triton's interpreter and compiler. torch for CUDA brings this version of Triton. It
# lies in a folder of its own, so that no other test finds it.
TRITON := .cache/triton
test-triton: $(TOOLS) $(TRITON)/installed
	PYTHONPATH='$(CURDIR)/$(TRITON)' TRITON_INTERPRET=1 OMP_NUM_THREADS=1 \
		$(VENV)/bin/python -m pytest -m cuda tests/gpu/test_rotary_kernel.py

$(TRITON)/installed: constraints.txt
	@echo "installing into $(@D)"
	@rm -rf $(@D) && $(PIP) install --no-deps --target $(@D) triton==3.7.1
	@touch $@

# The tests marked `cuda`, in an environment of their own with torch for CUDA: that of the package index,
# or with UV_TORCH_BACKEND=auto the one that fits the driver. GPU_PYTHON=python3 takes a Python that has all of it, and installs
# nothing. They have not run on a GPU yet: the figures of one in docs/figures.md were measured by hand.
GPU := .venv-gpu
GPU_PYTHON ?= $(GPU)/bin/python
GPU_READY := has-gpu $(if $(filter $(GPU)/bin/python,$(GPU_PYTHON)),$(GPU)/installed)
FINDS_GPU := import sys, torch; torch.cuda.is_available() or sys.exit("torch " + torch.__version__ + " finds no GPU: install \
	one for CUDA, by UV_TORCH_BACKEND=auto in a new $(GPU)")
test-gpu: $(GPU_READY)
	@$(GPU_PYTHON) -c '$(FINDS_GPU)'
	OMP_NUM_THREADS=4 $(GPU_PYTHON) -m pytest -n 4 -rs -m cuda tests/gpu

# Measure the figures of a GPU, print them, and keep them in GPU_FIGURES, by default build/figures-gpu. GPU_PYTHON is that of
# test-gpu. The sizes are chosen for 4 minutes on an H100; no GPU has run it yet. GPU_DEVICE=cpu QUICK=1 tries every step with
# small models, without a GPU.
GPU_DEVICE ?= cuda
figures-gpu: $(if $(filter cuda,$(GPU_DEVICE)),$(GPU_READY))
	@$(if $(filter cuda,$(GPU_DEVICE)),$(GPU_PYTHON) -c '$(FINDS_GPU)')
	$(GPU_PYTHON) benchmarks/gpu_figures.py --device $(GPU_DEVICE) $(if $(QUICK),--quick) $(if $(GPU_FIGURES),--output '$(GPU_FIGURES)')

has-gpu:
	@nvidia-smi --list-gpus > /dev/null 2>&1 || { echo "nvidia-smi lists no GPU on this machine, so nothing was run" >&2; exit 2; }

$(GPU)/installed: setup.cfg pyproject.toml constraints.txt
	@echo "installing into $(GPU), which takes a few minutes: torch for CUDA has gigabytes"
	@test -x $(GPU)/bin/python || $(PYTHON) -m venv $(GPU)
	@$(GPU)/bin/python -m pip install --quiet --disable-pip-version-check uv
	@$(call BY_UV,$(GPU),--constraint '$(CONSTRAINTS)' --editable '.[test]')
	@touch $@

# Every command and Python block of README.md and docs/, as a user types them who installed the wheel. The environment takes the
# wheel's dependencies from .venv, whose own installation of the package it does not see: .pth files there are not read.
ACCEPTANCE := .venv-acceptance
EXTRAS := train,keras,sentence-transformers,retrieval,export,embed
SITE_PACKAGES := -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
acceptance: $(TOOLS)
	@rm -rf $(ACCEPTANCE) && $(VENV)/bin/python -m venv --without-pip $(ACCEPTANCE)
	@$(VENV)/bin/python $(SITE_PACKAGES) > "$$($(ACCEPTANCE)/bin/python $(SITE_PACKAGES))/dependencies.pth"
	@$(IN_FOLDER) && $(PIP) wheel --no-index --no-deps --no-build-isolation --wheel-dir "$$folder" . \
		&& $(PIP) --python $(ACCEPTANCE)/bin/python install --no-index "$$(echo "$$folder"/*.whl)[$(EXTRAS)]"
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n 2 --dist worksteal -vv -m acceptance tests/acceptance

# Every script of examples/, with a setting that takes seconds.
examples: $(TOOLS)
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" bash examples/run_all.sh

lint: ruff schemas repository contracts types

ruff: $(TOOLS)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

# The files that only GitHub reads, against the schemas that check-jsonschema brings.
SCHEMA := $(VENV)/bin/check-jsonschema --quiet --builtin-schema
schemas: $(TOOLS)
	$(SCHEMA) vendor.github-workflows .github/workflows/*.yml
	$(SCHEMA) custom.github-workflows-require-timeout .github/workflows/*.yml
	$(SCHEMA) vendor.github-issue-forms $(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml))
	$(SCHEMA) vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(SCHEMA) vendor.citation-file-format --force-filetype yaml CITATION.cff

# What the documentation, the workflows and the requirements name.
repository: $(TOOLS)
	$(VENV)/bin/python -m pytest -o addopts=-q tests/repository

# Make an ordinary installation in the folder `site` of a temporary folder, and go there: in an editable one, the tools
# below miss packages.
INSTALLED = $(IN_FOLDER) && cp pyproject.toml "$$folder" \
	&& $(PIP) install --no-index --no-deps --no-build-isolation --target "$$folder/site" . && cd "$$folder"

# The contracts of pyproject.toml.
contracts: $(TOOLS)
	@$(INSTALLED) && PYTHONPATH="$$folder/site" '$(CURDIR)/$(VENV)/bin/lint-imports' --no-cache

# The types of the models and the tokenizer, and of what they use.
types: $(TOOLS)
	@$(INSTALLED) && '$(CURDIR)/$(VENV)/bin/basedpyright' --project pyproject.toml --pythonpath '$(CURDIR)/$(VENV)/bin/python'

# Build the sdist and the wheel into dist/, and check them. Nothing is uploaded. TAG=v1.2.3 requires the version 1.2.3.
dist: $(DIST)
	rm -rf dist
	$(VENV)/bin/python -m build --quiet --no-isolation
	$(VENV)/bin/twine check --strict dist/*
	@test -z "$$TAG" || test -f "dist/modeling_roformer-$${TAG#v}.tar.gz" \
	|| { echo "the tag $$TAG is not the version in modeling_roformer/__init__.py" >&2; exit 1; }

# Build docs/ and the API reference as a web site into build/site. A broken link or anchor fails the build.
site: $(SITE)
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict
	$(VENV)/bin/python -m pytest -m site tests/docs/test_site.py

# Measure the tables of the documentation that are missing or out of date, and print them into the pages. ONLY="inference onnx"
# measures the parts with these names, FORCE=1 all; those that train models for hours run only by name.
figures: $(BENCH)
	$(VENV)/bin/python benchmarks/figures.py $(ONLY) $(if $(FORCE),--force)

# Name each table whose code has changed since it was measured. It never fails.
figures-status: $(TOOLS)
	-$(VENV)/bin/python benchmarks/figures.py --status

# Reinstall if .venv has another installation (`pip install .`) or the clone was moved. Python is started in another folder,
# since in this one it finds the tree whatever is installed.
FIND := from importlib.util import find_spec; print(find_spec("modeling_roformer").origin)
FOUND := $(shell cd / && '$(CURDIR)/$(VENV)/bin/python' -c '$(FIND)' 2>/dev/null)
ifneq ($(FOUND),$(CURDIR)/modeling_roformer/__init__.py)
.PHONY: $(STAMPS)
endif

$(TOOLS): EXTRA := [test,lint]
$(RAY): EXTRA := [test,lint,ray]
$(BROWSER): EXTRA := [test,lint,page,browser]
$(DIST): EXTRA := [test,lint,dist]
$(SITE): EXTRA := [test,lint,site]
$(BENCH): EXTRA := [test,lint,bench]
# pip takes the torch of the package index, which brings CUDA on Linux. UV_TORCH_BACKEND=cpu has uv take the one for CPUs, from an
# index of its own; where that cannot be reached, pip installs.
PACKAGES = --constraint '$(CONSTRAINTS)' --editable '.$(EXTRA)'
$(STAMPS): setup.cfg pyproject.toml constraints.txt
	@echo "installing into $(VENV), which takes a few minutes the first time"
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
ifdef UV_TORCH_BACKEND
	@{ $(PIP) install uv && $(VENV)/bin/uv pip install --quiet --python $(VENV)/bin/python $(PACKAGES); } \
		|| { echo "uv failed: pip installs, without UV_TORCH_BACKEND=$(UV_TORCH_BACKEND)" >&2; $(PIP) install $(PACKAGES); }
else
	@$(PIP) install $(PACKAGES)
endif
	@touch $(PACKAGE) $@

# What the targets above make, and nothing else: build/figures stays too, which holds models that took hours to train.
clean:
	rm -rf $(VENV) $(CLIENTS) $(FLOORS) $(NEWEST) $(GPU) $(ACCEPTANCE) $(JS) $(TRITON) .cache/transformers-tests .pytest_cache \
		.ruff_cache .hypothesis modeling_roformer.egg-info build/site build/site_sources dist
