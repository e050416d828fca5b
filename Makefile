# Two commands do everything: `make profile` and `make test`. `make` alone prints the list.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

# The virtual environment. VENV= (empty) uses the interpreter at hand, and names the packages that it lacks.
VENV ?= .venv
PYTHON ?= python3
# Scripts get PYTHON, and some run in other folders: so a path becomes absolute, and a name such as python3 stays a name.
override PYTHON := $(if $(findstring /,$(PYTHON)),$(abspath $(PYTHON)),$(PYTHON))
# CMD: the program to profile (default: GPT-2). RUN: the run to report on or to continue. ARGS: more arguments of the program
# behind a target, such as ARGS='--budget 60'.
CMD ?=
RUN ?=
ARGS ?=
# A path may hold blanks.
THE_RUN = $(if $(RUN),'$(RUN)')

PY := $(if $(VENV),$(VENV)/bin/python,$(PYTHON))
BASE := $(if $(VENV),$(VENV)/.base,.at-hand)
HARNESS := $(if $(VENV),$(VENV)/.harness,.at-hand-harness)
CENSUS := $(if $(VENV),$(VENV)/.census,.at-hand)
TESTS := $(if $(VENV),$(VENV)/.harness,.at-hand-tests)
# The versions of the lock; without its hashes, which pip wants of every package or of none.
PINS := $(VENV)/.pins
PIP := PIP_CONSTRAINT=$(abspath $(PINS)) $(PY) -m pip install -qq --disable-pip-version-check
# Without a GPU, torch's CPU build saves gigabytes. PyPI has none under this name; other indexes and local wheels may.
TORCH_CPU := torch==2.13.0+cpu
TORCH_CUDA := torch==2.13.0
export PYTHONUNBUFFERED := 1

.PHONY: help
help:  ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile

.PHONY: profile
profile: announce $(HARNESS)  ## profile GPT-2, or CMD='python my_model.py', and write the report (ARGS='--budget 60'; RUN=… continues)
	@PYTHON='$(PY)' ANNOUNCED=yes nsys_scripts/profile.sh $(if $(RUN),--run '$(RUN)') $(ARGS) $(if $(CMD),-- $(CMD))

.PHONY: test
test: $(TESTS)  ## run all tests but those in a browser (ARGS='-n 0': one by one)
	@$(PY) -m pytest -n auto --maxprocesses 8 --dist loadgroup --ignore tests/browser $(ARGS)

# One Chromium at a time: it uses the other processors itself.
.PHONY: test-page
test-page: $(TESTS)  ## test report.html in Chromium (needs pip install -e '.[browser]')
	@$(PY) -m pytest tests/browser $(ARGS)

.PHONY: fuzz
fuzz: $(TESTS)  ## damage files at random and read them (ARGS='--inputs 1000000 --seed 1 --jobs 2')
	@$(PY) -m tests.fuzz.fuzz_readers $(ARGS)

.PHONY: report
report: $(BASE)  ## report on RUN=folder-or-file (default: the newest run, else the committed one)
	@$(PY) analysis/report.py $(THE_RUN) $(ARGS)

.PHONY: roofline
roofline: $(BASE)  ## draw only the rooflines of RUN=… (default: the newest run with counters)
	@$(PY) analysis/report.py $(THE_RUN) --only roofline $(ARGS)

.PHONY: fusion
fusion: $(BASE)  ## name the kernels of RUN=… to fuse, and the gain (default: the newest run with a timeline)
	@$(PY) analysis/report.py $(THE_RUN) --only fusion $(ARGS)

.PHONY: selftest
selftest: need-gpu $(HARNESS)  ## measure this GPU's roofs, and test its counters with known bytes and FLOPs (needs a GPU)
	@PYTHON='$(PY)' nsys_scripts/profile.sh --roofs $(ARGS)

.PHONY: doctor
doctor:  ## say what this machine has for profiling, and how to get what it lacks
	@if [[ -x '$(PY)' ]]; then '$(PY)' -m harness.doctor; else '$(PYTHON)' -m harness.doctor; fi

.PHONY: bench-softmax
bench-softmax: $(HARNESS)  ## time every softmax variant side by side (without a GPU: only check it)
	@$(PY) -m harness.bench softmax $(ARGS)

.PHONY: bench
bench: $(HARNESS)  ## time every variant of every op, or of OP='gelu layernorm' (without a GPU: only check them)
	@$(PY) -m harness.bench $(OP) $(ARGS)

.PHONY: ladder
ladder: $(HARNESS)  ## check, time and capture the rungs that runs/ladder lacks, of OP='gelu softmax' (ARGS=--missing lists them)
	@PYTHON='$(PY)' studies/ladder/ladder.sh $(ARGS) $(OP)

.PHONY: sanitize
sanitize: need-gpu  ## run every CUDA rung under the four tools of compute-sanitizer (needs a GPU)
	@PYTHON='$(PY)' tests/gpu/sanitize.sh $(ARGS)

.PHONY: census
census: $(CENSUS)  ## list registers, local memory and access widths of every kernel (needs nvcc; ARGS=--update)
	@$(PY) -m kernels.census $(ARGS)

# Each of these targets makes a run folder, or adds to RUN=…, and reports on it.
space := $(subst ,, )
SWEPT = $(if $(filter sweep,$@),$(OP))
NO_RUN := --dry-run --help -h
NEW_RUN = $(or $(RUN),runs/$(shell date -u +%Y%m%dT%H%M%SZ)-$(subst $(space),-,$(strip $@ $(SWEPT))))
MEASURE_layers = studies.layers.measure
MEASURE_kernels-of-layers = studies.layers.measure_alone
MEASURE_baseline = studies.baseline.measure
MEASURE_sweep = studies.sweep.measure
define run_and_report
@run='$(NEW_RUN)'; $(PY) -m $(MEASURE_$@) $(SWEPT) --out "$$run" $(ARGS) $(if $(filter $(NO_RUN),$(ARGS)),,&& $(PY) analysis/report.py "$$run" --quiet)
endef

.PHONY: layers
layers: $(HARNESS)  ## time every layer and component of GPT-2 (ARGS='--runs 20 --no-cache --model package.module:build')
	$(run_and_report)

.PHONY: kernels-of-layers
kernels-of-layers: $(HARNESS)  ## time the five heaviest components alone: kernels, CUDA API calls, launch overhead
	$(run_and_report)

.PHONY: baseline
baseline: $(HARNESS)  ## time Hugging Face transformers: eager, sdpa, CUDA graph, static cache + compile
	$(run_and_report)

.PHONY: decode
decode: $(HARNESS)  ## check, time and capture every rung of GPT-2's decoding (RUN=… continues; without a GPU: a small model)
	@run='$(NEW_RUN)'; PYTHON='$(PY)' studies/decode/decode.sh --out "$$run" $(ARGS) $(if $(filter -n,$(ARGS)),,&& $(PY) analysis/report.py "$$run" --quiet && if [[ -d "$$run-graphs/captures/nsys" ]]; then $(PY) analysis/report.py "$$run-graphs" --quiet; fi)

# To count MODEL=package.module:build, the program runs it, which needs torch.
.PHONY: accounting
accounting: $(if $(findstring :,$(MODEL)),$(HARNESS),$(BASE))  ## count parameters, FLOPs, bytes, times of MODEL=gpt2, llama-3-8b, config.json, package.module:build
	@$(PY) -m studies.accounting $(or $(MODEL),gpt2) $(ARGS)

.PHONY: accounting-truth
accounting-truth: $(HARNESS)  ## compare the accounting with this GPU: parameters, memory, FLOPs, DRAM bytes (RUN=DIR)
	@run='$(or $(RUN),runs/$(shell date -u +%Y%m%dT%H%M%SZ)-accounting)'; PYTHON='$(PY)' studies/accounting/measure.sh --out "$$run" $(ARGS) && $(PY) analysis/report.py "$$run" --quiet

# `make studies` runs every study, `make study NAME=matmul` runs one.
.PHONY: studies study
studies: $(HARNESS)  ## measure a lecture's claims on GPUs (without a GPU: profiles, mlp, units)
study: $(HARNESS)  ## measure one of them: NAME=profiles, matmul, mlp, tricks, waves, latencies or units
studies study:
	@[[ $@ == studies || -n '$(NAME)' ]] || { echo "make study needs NAME=matmul: profiles, matmul, mlp, tricks, waves, latencies or units." >&2; exit 2; }; \
	run='$(or $(RUN),runs/$(shell date -u +%Y%m%dT%H%M%SZ)-lectures)'; PYTHON='$(PY)' studies/lectures/studies.sh --out "$$run" $(NAME) $(ARGS) && $(PY) analysis/report.py "$$run" --quiet

.PHONY: multi-gpu
multi-gpu: $(HARNESS)  ## compare GPT-2 on two GPUs (data and tensor parallel, the trap) with predictions (ARGS=-n prints the commands; without a GPU: a small model)
	@run='$(or $(RUN),runs/$(shell date -u +%Y%m%dT%H%M%SZ)-multi-gpu)'; PYTHON='$(PY)' studies/multi_gpu/multi_gpu.sh --out "$$run" $(ARGS)$(if $(filter -n --help -h,$(ARGS)),, && $(PY) analysis/report.py "$$run" --quiet)

.PHONY: bench-analysis
bench-analysis: $(BASE)  ## time the readers beside pandas on 0.5, 1 and 2 M kernels (ten minutes)
	@$(PY) -m tests.bench.readers $(ARGS)

.PHONY: sweep
sweep: $(HARNESS)  ## try every compile-time choice of OP='gelu layernorm' (ARGS='--counters --update'; RUN=… continues)
	@test -n '$(OP)' || { echo "make sweep needs OP=gelu, or several: OP='gelu layernorm'. \`python -m kernels.registry\` lists all." >&2; exit 2; }
	$(run_and_report)

.PHONY: lint
lint: $(TESTS)  ## run ruff, mypy, shellcheck, clang-format
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@$(dir $(PY))lint-imports --no-cache
	@PATH="$(abspath $(dir $(PY))):$$PATH" shellcheck -x -P SCRIPTDIR nsys_scripts/*.sh studies/*/*.sh .ci/run .ci/package
	@git ls-files 'kernels/*.cu' 'kernels/*.cuh' 'kernels/*.cpp' 'kernels/*.h' '*.c' | PATH="$(abspath $(dir $(PY))):$$PATH" xargs -r clang-format --dry-run -Werror

.PHONY: format
format: $(TESTS)  ## format the sources as lint requires
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .
	@git ls-files 'kernels/*.cu' 'kernels/*.cuh' 'kernels/*.cpp' 'kernels/*.h' '*.c' | PATH="$(abspath $(dir $(PY))):$$PATH" xargs -r clang-format -i

.PHONY: readme
readme: $(HARNESS)  ## rebuild the committed reports and the generated parts of the READMEs
	@folders=$$($(PY) -m studies.runs ladder); for folder in $$folders; do \
	$(PY) -m studies.ladder.measure --mode declare --out $$folder; xz -9ef $$folder/ladder.json; $(PY) -m studies.ladder.build $$folder; done
	@folders=$$(for part in layers sweep overview studies accounting decode multi_gpu data_parallel tensor_parallel; do $(PY) -m studies.runs $$part; done); \
	for folder in $$folders; do $(PY) analysis/report.py $$folder/captures --out $$folder --quiet; done
	@$(PY) -m studies.publish

.PHONY: lock
lock: $(VENV)/bin/python  ## write .ci/requirements.lock for pyproject.toml (ARGS=--upgrade: the newest versions)
	@$(PY) .ci/lock $(ARGS)

.PHONY: clean
clean:  ## remove build/ and caches; runs/ and the virtual environment stay
	@rm -rf build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

# --- setting up ---

.PHONY: announce
announce:
	@[[ '$(origin CMD)' != 'command line' || -n '$(if $(CMD),yes)' ]] || { echo "CMD is empty: give the program to profile, or leave CMD out to profile GPT-2." >&2; exit 2; }
	@[[ -z '$(if $(CMD),yes)' ]] || bash -nc "command=($$CMD)" 2>/dev/null || { echo "CMD is one program with its arguments: put |, &&, ; or > into a script, or give CMD=\"bash -c '…'\"." >&2; exit 2; }
	@source nsys_scripts/common.sh; if gpu=$$(find_gpu); then echo "NVIDIA GPU found: $$gpu."; \
	elif [[ -n '$(if $(CMD),$(if $(filter -n,$(ARGS)),,yes))' ]]; then echo "CMD needs an NVIDIA GPU, and there is none here: $$gpu. ARGS=-n prints the commands." >&2; exit 2; \
	elif [[ -n '$(if $(CMD)$(RUN),yes)' ]]; then echo "No NVIDIA GPU found: $$gpu."; \
	else echo "No NVIDIA GPU found: $$gpu. GPT-2 runs on the CPU for its layer times; the full report is of the committed run."; fi

.PHONY: need-gpu
need-gpu:
	@source nsys_scripts/common.sh; find_gpu >/dev/null || { echo "This needs an NVIDIA GPU, and there is none here: $$(find_gpu || true)." >&2; exit 2; }

# Print one sentence if there is no Python, if it is too old, or if it lacks venv, which is a package of its own in Debian.
define check_python
if ! command -v '$(PYTHON)' >/dev/null; then echo "There is no $(PYTHON) here: install Python 3.11 or newer, or name one with PYTHON=…" >&2; exit 127; fi; \
if ! '$(PYTHON)' -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then echo "$$('$(PYTHON)' --version) is too old: install Python 3.11 or newer, or name one with PYTHON=…" >&2; exit 2; fi
endef
no_pip = { echo "pip could not install the packages: without internet, 'make $(MAKECMDGOALS) VENV= PYTHON=python3' uses the interpreter at hand." >&2; exit 1; }

ifneq ($(VENV),)
$(VENV)/bin/python:
	@$(check_python)
	@'$(PYTHON)' -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) has no venv module: install it (Debian, Ubuntu: apt-get install python3-venv), or use VENV= for the interpreter as it is." >&2; exit 2; }
	@echo "Setting up $(VENV) …"
	@'$(PYTHON)' -m venv '$(VENV)'

$(PINS): .ci/requirements.lock | $(VENV)/bin/python
	@sed -e '/--hash=/d' -e 's/ \\$$//' $< >$@

$(VENV)/.base: pyproject.toml $(PINS)
	@echo "Installing what reports need …"
	@$(PIP) -e . || $(no_pip)
	@touch $@

$(VENV)/.census: $(VENV)/.base
	@echo "Installing NVIDIA's disassembler …"
	@$(PIP) -e '.[census]' || $(no_pip)
	@touch $@

# The file holds "gpu" or "cpu" and changes only with the machine: with a GPU, torch's CPU build is of no use.
.PHONY: .look-again
$(VENV)/.machine: .look-again | $(VENV)/bin/python
	@source nsys_scripts/common.sh; if find_gpu >/dev/null; then now=gpu; else now=cpu; fi; \
	if [[ $$(cat $@ 2>/dev/null || true) != "$$now" ]]; then echo $$now >$@; fi

$(VENV)/.harness: $(VENV)/.base $(VENV)/.machine
	@echo "Installing what the GPT-2 harness and the tests need (torch: some minutes) …"
	@if [[ $$(cat $(VENV)/.machine) == cpu ]]; then $(PY) -c 'import torch' 2>/dev/null || $(PIP) '$(TORCH_CPU)' 2>/dev/null || true; \
	elif $(PY) -c 'import sys, torch; sys.exit(torch.version.cuda is not None)' 2>/dev/null; then \
	$(PIP) --force-reinstall --no-deps '$(TORCH_CUDA)' || $(no_pip); fi
	@$(PIP) -e '.[harness,dev]' || $(no_pip)
	@touch $@
endif

.PHONY: .at-hand .at-hand-harness .at-hand-tests
.at-hand:
	@$(check_python)
	@'$(PYTHON)' harness/packages.py
.at-hand-harness:
	@$(check_python)
	@'$(PYTHON)' harness/packages.py harness
.at-hand-tests:
	@$(check_python)
	@'$(PYTHON)' harness/packages.py harness dev
