# CONTRIBUTING.md has the targets on one screen.
#
# An environment is a folder, .venv or .venv-NAME. `make` installs once what a target needs, and again when setup.cfg,
# pyproject.toml or constraints.txt change; the rule is at the end. .venv is installed by pip, the others are by uv.
PYTHON ?= python3
# A file of pinned versions; CONSTRAINTS=/dev/null installs the newest version of every dependency.
CONSTRAINTS ?= constraints.txt
# The extras that are tested.
EXTRAS := train,keras,sentence-transformers,retrieval,export,embed,predict

VENV := .venv
# Stamp files, one for each set of extras and groups that is installed.
PACKAGE := $(VENV)/package
TOOLS := $(VENV)/tools
RAY := $(VENV)/ray
BROWSER := $(VENV)/browser
FIGURES := $(VENV)/figures
CLIENTS := .venv-clients/installed
FLOORS := .venv-floors/installed
NEWEST := .venv-newest/installed
GPU := .venv-gpu/installed
STAMPS := $(PACKAGE) $(TOOLS) $(RAY) $(BROWSER) $(FIGURES)
OTHERS := $(CLIENTS) $(FLOORS) $(NEWEST) $(GPU)

$(PACKAGE): WITH := .
$(TOOLS): WITH := '.[$(EXTRAS)]' --group test --group lint --group dist --group site
$(RAY): WITH := '.[$(EXTRAS),ray]' --group test
$(BROWSER): WITH := '.[$(EXTRAS),page]' --group test --group browser
$(FIGURES): WITH := '.[$(EXTRAS)]' --group figures
$(CLIENTS): WITH := '.[train,embed,sentence-transformers]' --requirement tests/clients/requirements.txt
$(FLOORS): WITH := '.[$(EXTRAS)]' --group test --resolution lowest-direct
$(NEWEST): WITH := '.[keras,sentence-transformers,export,embed]' --group test
$(GPU): WITH := '.[$(EXTRAS)]' --group test

PIP := $(VENV)/bin/python -m pip -qq
PYTEST := OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest
# Make a temporary folder, for the commands that follow in the same line of a recipe.
IN_FOLDER = folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT

.PHONY: demo test lint contracts test-slow test-common test-floors test-newest test-clients test-gpu acceptance figures figures-gpu \
	dist site clean

demo: $(PACKAGE)
	$(VENV)/bin/python examples/demo.py

test: $(TOOLS)
	@echo "the tests take about 5 minutes on two idle cores; a failure is printed at once"
	$(PYTEST) -n 2 --dist worksteal

# The files that only GitHub reads are checked against the schemas that check-jsonschema brings; tests/repository reads what the
# documentation, the workflows and the requirements name; the types are those of the models and the tokenizer.
SCHEMA := $(VENV)/bin/check-jsonschema --quiet --builtin-schema
lint: $(TOOLS) contracts
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(SCHEMA) vendor.github-workflows .github/workflows/*.yml
	$(SCHEMA) custom.github-workflows-require-timeout .github/workflows/*.yml
	$(SCHEMA) vendor.github-issue-forms $(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml))
	$(SCHEMA) vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(SCHEMA) vendor.citation-file-format --force-filetype yaml CITATION.cff
	$(VENV)/bin/python -m pytest -o addopts=-q tests/repository
	@$(INSTALLED) && '$(CURDIR)/$(VENV)/bin/basedpyright' --project pyproject.toml --pythonpath '$(CURDIR)/$(VENV)/bin/python'

# The contracts of pyproject.toml on which folder may import which.
contracts: $(TOOLS)
	@$(INSTALLED) && PYTHONPATH="$$folder/site" '$(CURDIR)/$(VENV)/bin/lint-imports' --no-cache

# Make an ordinary installation in the folder `site` of a temporary folder, and go there: in an editable one, tools miss packages.
INSTALLED = $(IN_FOLDER) && cp pyproject.toml "$$folder" \
	&& $(PIP) install --no-index --no-deps --no-build-isolation --target "$$folder/site" . && cd "$$folder"

# The tests that compile, export, train for seconds or start processes, which take longer than the others together; the rotary
# kernel in Triton's interpreter; Ray, one test at a time, since each uses all cores; the page in Chromium, and exported folders in
# transformers.js, where these are installed.
CHROMIUM := $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)
NPM := $(shell command -v npm || true)
TRITON := .cache/triton
JS := .cache/transformers.js
test-slow: $(RAY) $(TRITON)/installed $(if $(CHROMIUM),$(BROWSER)) $(if $(NPM),$(JS)/node_modules)
	$(PYTEST) -n 2 --dist worksteal -m slow
	PYTHONPATH='$(CURDIR)/$(TRITON)' TRITON_INTERPRET=1 $(PYTEST) -m cuda tests/gpu/test_rotary_kernel.py
	$(VENV)/bin/python -m pytest -m ray
	$(if $(CHROMIUM),$(PYTEST) -rs -m page tests/serving,@echo "not tested: the page, without Chromium (apt-get install chromium fonts-noto-cjk)")
	$(if $(NPM),$(PYTEST) -rs -m js,@echo "not tested: exported folders in transformers.js, without npm (install Node)")

# torch for CUDA brings this version of Triton. It lies in a folder of its own, so that no other test finds it.
$(TRITON)/installed: constraints.txt $(TOOLS)
	@echo "installing into $(@D)"
	@rm -rf $(@D) && $(PIP) install --no-deps --target $(@D) triton==3.7.1
	@touch $@

$(JS)/node_modules:
	@echo "installing into $(@D)"
	@mkdir -p $(@D) && npm install --prefix $(@D) --ignore-scripts --no-audit --no-fund --loglevel=error @huggingface/transformers@4.3.1

# transformers' own tests of models and tokenizers, run on this package's classes.
test-common: $(TOOLS)
	$(PYTEST) -o addopts=-q tests/common

# The tests with the lowest versions that setup.cfg promises; first, and with QUICK=1 alone, those of tests/floors.txt, of which
# every dependency has one. Versions that CONSTRAINTS pins are kept: CONSTRAINTS=/dev/null takes the lowest torch too.
test-floors: $(FLOORS)
	OMP_NUM_THREADS=1 .venv-floors/bin/python -m pytest -n 2 -m '' tests/installation/test_floors.py $$(sed -n 's/^[a-z].* //p' tests/floors.txt)
	$(if $(QUICK),,OMP_NUM_THREADS=1 .venv-floors/bin/python -m pytest -n 2)

# The newest of everything, without the extra `train`, which is bound to older versions: the tests of tests/floors.txt that do not
# need it. CONSTRAINTS=/dev/null takes the newest torch too, which brings 6 GB of CUDA on Linux, unless UV_TORCH_BACKEND=cpu is set.
test-newest: $(NEWEST)
	OMP_NUM_THREADS=1 .venv-newest/bin/python -m pytest -n 2 -m '' $$(sed -n '/extra `train`:/q; s/^[a-z].* //p' tests/floors.txt)

# The tools of docs/serving.md and docs/vectors.md, which bring some 300 packages.
test-clients: $(CLIENTS)
	OMP_NUM_THREADS=1 .venv-clients/bin/python -m pytest -m clients -rs tests/clients

# A Python with torch for CUDA: that of the package index, or with UV_TORCH_BACKEND=auto the one that fits the driver.
# GPU_PYTHON=python3 takes a Python that has all of it, and installs nothing. The tests have not run on a GPU yet: the figures of
# one in docs/figures.md were measured by hand.
GPU_DEVICE ?= cuda
ifndef GPU_PYTHON
GPU_READY := $(if $(filter cpu,$(GPU_DEVICE)),$(TOOLS),$(GPU))
GPU_PYTHON := $(dir $(GPU_READY))bin/python
endif
FINDS_GPU := import sys, torch; torch.cuda.is_available() or sys.exit("torch " + torch.__version__ + " finds no GPU: install \
	one for CUDA, by UV_TORCH_BACKEND=auto in a new .venv-gpu")
test-gpu: $(GPU_READY)
	@$(GPU_PYTHON) -c '$(FINDS_GPU)'
	OMP_NUM_THREADS=4 $(GPU_PYTHON) -m pytest -n 4 -rs -m cuda tests/gpu

# Every command and Python block of README.md and docs/, as a user types them who installed the wheel, and every script of
# examples/ with a setting that takes seconds. The environment takes the wheel's dependencies from .venv, whose own installation of
# the package it does not see: .pth files there are not read.
SITE_PACKAGES := -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
acceptance: $(TOOLS)
	@rm -rf .venv-acceptance && $(VENV)/bin/python -m venv --without-pip .venv-acceptance
	@$(VENV)/bin/python $(SITE_PACKAGES) > "$$(.venv-acceptance/bin/python $(SITE_PACKAGES))/dependencies.pth"
	@$(IN_FOLDER) && $(PIP) wheel --no-index --no-deps --no-build-isolation --wheel-dir "$$folder" . \
		&& $(PIP) --python .venv-acceptance/bin/python install --no-index "$$(echo "$$folder"/*.whl)[$(EXTRAS)]"
	$(PYTEST) -n 2 --dist worksteal -vv -m acceptance tests/acceptance
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" bash examples/run_all.sh

# Measure the tables of the documentation that are missing or out of date, and print them into the pages. ONLY="inference onnx"
# measures the parts with these names, FORCE=1 all; those that train models for hours run only by name. STATUS=1 measures nothing:
# it names each table whose code has changed since it was measured.
figures: $(if $(STATUS),$(TOOLS),$(FIGURES))
	$(VENV)/bin/python benchmarks/figures.py $(ONLY) $(if $(FORCE),--force) $(if $(STATUS),--status)

# Measure the figures of a GPU, print them, and keep them in GPU_FIGURES, by default build/figures-gpu. GPU_PYTHON is that of
# test-gpu. The sizes are chosen for 4 minutes on an H100; no GPU has run it yet. GPU_DEVICE=cpu QUICK=1 tries every step with
# small models, without a GPU.
figures-gpu: $(GPU_READY)
	@$(if $(filter cuda,$(GPU_DEVICE)),$(GPU_PYTHON) -c '$(FINDS_GPU)')
	$(GPU_PYTHON) benchmarks/figures.py --gpu --device $(GPU_DEVICE) $(if $(QUICK),--quick) $(if $(GPU_FIGURES),--output '$(GPU_FIGURES)')

# Build the sdist and the wheel into dist/, and check them. Nothing is uploaded. TAG=v1.2.3 requires the version 1.2.3.
dist: $(TOOLS)
	rm -rf dist
	$(VENV)/bin/python -m build --quiet --no-isolation
	$(VENV)/bin/twine check --strict dist/*
	@test -z "$$TAG" || test -f "dist/modeling_roformer-$${TAG#v}.tar.gz" \
	|| { echo "the tag $$TAG is not the version in modeling_roformer/__init__.py" >&2; exit 1; }

# Build docs/ and the API reference as a web site into build/site. A broken link or anchor fails the build.
site: $(TOOLS)
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict
	$(VENV)/bin/python -m pytest -m site tests/docs/test_site.py

# Reinstall if .venv has another installation (`pip install .`) or the clone was moved. Python is started in another folder,
# since in this one it finds the tree whatever is installed.
FIND := from importlib.util import find_spec; print(find_spec("modeling_roformer").origin)
FOUND := $(shell cd / && '$(CURDIR)/$(VENV)/bin/python' -c '$(FIND)' 2>/dev/null)
ifneq ($(FOUND),$(CURDIR)/modeling_roformer/__init__.py)
.PHONY: $(STAMPS)
endif

# The one rule for environments. pip installs into .venv. Dependency groups need pip 25.1. It takes the torch of the package index,
# which brings CUDA on Linux; with UV_TORCH_BACKEND=cpu, uv takes the torch for CPUs, from an index of its own. uv installs into the
# others, beside pip's torch of CONSTRAINTS. If uv fails with another torch, that of pip is taken.
$(RAY) $(BROWSER) $(FIGURES): $(TOOLS)
$(CLIENTS): tests/clients/requirements.txt
$(GPU): BEFORE := nvidia-smi --list-gpus > /dev/null 2>&1 \
	|| { echo "nvidia-smi lists no GPU on this machine, so nothing was installed" >&2; exit 2; }
PINNED = --constraint '$(CONSTRAINTS)'
BY_PIP = $(@D)/bin/python -m pip install -qq --disable-pip-version-check
BY_UV = $(@D)/bin/uv pip install -qq --python $(@D)/bin/python --editable $(WITH)
WITH_OTHER_TORCH = $(BY_PIP) uv && $(BY_UV) $(PINNED)
WITH_TORCH_OF_PIP = $(if $(filter $(STAMPS),$@),$(BY_PIP) 'pip>=25.1' && $(BY_PIP) $(PINNED) --editable $(WITH),\
	$(BY_PIP) --no-deps --requirement '$(CONSTRAINTS)' uv && env -u UV_TORCH_BACKEND $(BY_UV) $(PINNED))
$(STAMPS) $(OTHERS): setup.cfg pyproject.toml constraints.txt
	@$(BEFORE)
	@echo "installing into $(@D), which takes a few minutes the first time"
	@$(if $(filter $(OTHERS),$@),rm -rf $(@D))
	@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	@$(if $(UV_TORCH_BACKEND),{ $(WITH_OTHER_TORCH); } \
		|| { echo "uv failed: the torch of pip is taken" >&2; $(WITH_TORCH_OF_PIP); },$(WITH_TORCH_OF_PIP))
	@touch $(if $(filter $(STAMPS),$@),$(PACKAGE)) $@

# What the targets above make, and nothing else: build/figures stays too, which holds models that took hours to train.
clean:
	rm -rf $(VENV) .venv-acceptance $(dir $(OTHERS)) $(JS) $(TRITON) .cache/transformers-tests \
		.pytest_cache .ruff_cache .hypothesis modeling_roformer.egg-info build/site build/site_sources dist
