# Two commands do everything: `make profile` and `make test`. `make` alone prints the list.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

# The virtual environment. VENV= (empty) uses the interpreter at hand, and names the packages that it lacks.
VENV ?= .venv
PYTHON ?= python3
# Scripts get PYTHON, and some run in other folders: so a path becomes absolute, and a name such as python3 stays a name.
override PYTHON := $(if $(findstring /,$(PYTHON)),$(abspath $(PYTHON)),$(PYTHON))
export VENV PYTHON
export PYTHONUNBUFFERED := 1
# CMD: the program to profile (default: GPT-2). RUN: the run to report on or to continue. ARGS: more arguments of the program
# behind a target, such as ARGS='--budget 60'.
CMD ?=
RUN ?=
ARGS ?=
# A and B: the sides of a comparison: runs, or commands for `make ab`.
A ?=
B ?=
THE_RUN = $(if $(RUN),'$(RUN)')
PY := $(if $(VENV),$(VENV)/bin/python,$(PYTHON))
TOOLS := PATH="$(abspath $(dir $(PY))):$$PATH"
CODE := git ls-files 'kernels/*.cu' 'kernels/*.cuh' 'kernels/*.cpp' 'kernels/*.h' '*.c'
targets = $(shell sed -n 's/^\([a-z-]*\):.*\#\# .*/\1/p' $1)
STUDIES := $(call targets,studies/Makefile)
.PHONY: $(call targets,Makefile) $(STUDIES)

help:  ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile studies/Makefile

profile: setup-announce setup-harness  ## profile GPT-2, or CMD='python my_model.py', and write the report (ARGS='--budget 60'; RUN=… continues)
	@PYTHON='$(PY)' ANNOUNCED=yes nsys_scripts/profile.sh $(if $(RUN),--run '$(RUN)') $(ARGS) $(if $(CMD),-- $(CMD))

test: setup-tests  ## run all tests but those of kernels/, studies/ and in a browser (ARGS='-n 0': one by one)
	@env -u PYTHON $(PY) -m pytest -n auto --maxprocesses 8 --dist loadgroup --ignore tests/browser --studies=without $(ARGS)

test-studies: setup-tests  ## run the tests that guard only kernels/, studies/ or what adding one thing takes
	@env -u PYTHON $(PY) -m pytest -n auto --maxprocesses 8 --dist loadgroup --ignore tests/browser --studies=only $(ARGS)

test-fast: setup-tests  ## run the quick tests of the analysis, while you edit
	@env -u PYTHON $(PY) -m pytest -n auto --maxprocesses 8 --dist loadgroup --fast --studies=without tests/cpu $(ARGS)

test-page: setup-tests  ## test report.html in Chromium (needs pip install -e '.[browser]')
	@env -u PYTHON $(PY) -m pytest tests/browser $(ARGS)

report: setup-base  ## report on RUN=folder-or-file (default: the newest run, else the committed one)
	@$(PY) analysis/report.py $(THE_RUN) $(ARGS)

compare: setup-base  ## say where the time went between A=run and B=run, or several each, with verdicts (ARGS='--gate gate.toml')
	@$(PY) analysis/compare.py $(ARGS) $(A) -- $(B)

ab: setup-base  ## run A='command' and B='command' in turns, ROUNDS=24 times, and compare them (ARGS='--bare': without nsys)
	@$(PY) -m harness.ab --a '$(A)' --b '$(B)' $(if $(ROUNDS),--rounds '$(ROUNDS)') $(ARGS)

fleet: setup-fleet  ## read the captures below DIR='a b' into STORE=folder, and ask it (ARGS='--page fleet.html')
	@$(PY) analysis/fleet.py $(DIR) --out '$(or $(STORE),runs/fleet)' $(ARGS)

docs: setup-docs  ## build the documentation as a site that opens offline: build/docs/index.html
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet $(ARGS)
	@echo build/docs/index.html

roofline: setup-base  ## draw only the rooflines of RUN=… (default: the newest run with counters)
	@$(PY) analysis/report.py $(THE_RUN) --only roofline $(ARGS)

fusion: setup-base  ## name the kernels of RUN=… to fuse, and the gain (default: the newest run with a timeline)
	@$(PY) analysis/report.py $(THE_RUN) --only fusion $(ARGS)

selftest: setup-need-gpu setup-harness  ## measure this GPU's roofs, and test its counters with known bytes and FLOPs (needs a GPU)
	@PYTHON='$(PY)' nsys_scripts/profile.sh --roofs $(ARGS)

doctor:  ## say what this machine has for profiling, and how to get what it lacks
	@if [[ -x '$(PY)' ]]; then '$(PY)' -m harness.doctor; else '$(PYTHON)' -m harness.doctor; fi

lint: setup-tests  ## run ruff, mypy, import-linter, shellcheck, clang-format
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@$(dir $(PY))lint-imports --no-cache
	@$(TOOLS) shellcheck -x -P SCRIPTDIR harness/*.sh nsys_scripts/*.sh nsys_scripts/slurm/*.s* studies/*/*.sh .ci/run .ci/package .ci/setup .ci/census_gate
	@$(CODE) | $(TOOLS) xargs -r clang-format --dry-run -Werror

format: setup-tests  ## format the sources as lint requires
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .
	@$(CODE) | $(TOOLS) xargs -r clang-format -i

lock: setup-venv  ## write .ci/requirements.lock for pyproject.toml (ARGS=--upgrade: the newest versions)
	@$(PY) .ci/lock $(ARGS)

clean:  ## remove build/ and caches; runs/ and the virtual environment stay
	@rm -rf build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

$(STUDIES):
	@$(MAKE) -f studies/Makefile $@ PY='$(PY)'

# --- setting up: .ci/setup --help ---

setup-%:
	@CMD_FROM='$(origin CMD)' .ci/setup $*
