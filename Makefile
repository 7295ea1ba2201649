# `make` prints what there is.
SCALE ?= laptop
SCALES := $(basename $(notdir $(wildcard config/scales/*.yaml)))
FIGURES ?= all
SEEDS ?=
PYTHON ?= python3
WORKERS ?= 2
KILLS ?= 30
SWEEP ?= regime
VENV := .venv
PROFILE ?=
# What a profile needs beside the environment, and what writes locks, in folders of their own.
PLUGINS := $(VENV)/slurm
LOCKER := $(VENV)/uv
# The code of this checkout, also where several share an environment.
HERE = PYTHONPATH="workflow$(1)$${PYTHONPATH:+:$$PYTHONPATH}" $(VENV)/bin
PTQ = $(HERE)/ptq-dynamics
CHOICE = scale=$(SCALE) figures="$(FIGURES)" $(if $(SEEDS),more_seeds="$(SEEDS)") $(if $(DEEP),deep=true)
BUILD = $(HERE)/snakemake --config $(CHOICE)
SEND = $(if $(PROFILE),$(call HERE,:$(PLUGINS))/snakemake \
	--workflow-profile profiles/$(PROFILE) --config $(CHOICE),$(BUILD))
# On a full disk even compiled code is cut off, and then stays so.
ROOM = df -Pk . | awk 'END {for (i = 2; i <= NF; i++) if ($$i ~ /^[0-9]+%$$/) exit $$(i - 1) < 51200}' || \
	{ echo "error: less than 50 MB are left on the disk of this folder; free some space" >&2; exit 1; }
STATUS = $(PTQ) status --scale $(SCALE) --figures "$(FIGURES)" \
	$(if $(SEEDS),--more-seeds "$(SEEDS)") $(if $(DEEP),--deep)
# Named by what project and locks say, so that neither their times nor comments install anything.
INSTALLED := $(VENV)/.installed-$(shell sed -e 's/^\#.*//' -e 's/ *[ ]\#.*//' -e '/^ *$$/d' \
	pyproject.toml envs/main.txt envs/cuda.txt | cksum | cut -d ' ' -f 1)
# Files of tests side by side; a file's tests share what they build.
PYTEST := $(VENV)/bin/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -rs --durations 40 --durations-min 5
# What installs more than the environment: tools in environments of their own, and a cluster.
MORE := tests/workflow/test_backends.py tests/workflow/test_slurm.py

# A build starts hundreds of processes, and each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

# Snakemake keeps a cache in the home directory, which may be read-only.
ifneq ($(shell test -w "$$HOME" && echo yes),yes)
export XDG_CACHE_HOME ?= $(CURDIR)/.snakemake/cache
export MPLCONFIGDIR ?= $(CURDIR)/.snakemake/cache/matplotlib
endif

.PHONY: help install figures claims paper report all prefetch test test-fast test-more test-slurm unit lint backends sweep chaos staleness locks release clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1|/' | column -t -s '|'
	@echo "  SCALE=$(shell echo $(SCALES) | tr ' ' '|') (now $(SCALE)), FIGURES=\"fig04 fig06\" (now $(FIGURES)),"
	@echo "  SEEDS=\"202 203\" (further seeds of the headline figures),"
	@echo "  PROFILE=slurm (on a cluster: docs/cluster.md),"
	@echo "  DEEP=1 (compare all bytes of results with their manifests)"

install: $(INSTALLED)  ## install the locked environment; all other targets do so by themselves

figures: $(INSTALLED) $(if $(filter slurm,$(PROFILE)),$(PLUGINS))  ## build the figures: what is missing or outdated, nothing else
	@$(ROOM)
	@test -z "$(PROFILE)" -o -d "profiles/$(PROFILE)" || { echo "error: PROFILE is '$(PROFILE)': must be one of $(notdir $(wildcard profiles/*))" >&2; exit 1; }
	@# Records answer faster than Snakemake starts, and say in one line what is wrong with a choice.
	@state=$$($(STATUS) 2>&1) && echo "$$state" || case "$$state" in \
		error:*) echo "$$state" >&2; exit 1;; \
		*) $(SEND) && echo "done: figures/$(SCALE)/README.md shows all figures";; esac

claims: figures  ## outcomes of the paper's claims, and tables of numbers
	@$(BUILD) -- claims tables
	@$(PTQ) dev cost --scale $(SCALE)
	@$(PTQ) dev claims --scale $(SCALE) --figures "$(FIGURES)"

paper: figures  ## figures, claims and tables as one PDF: paper/SCALE/paper.pdf
	@$(BUILD) -- paper

report: claims  ## a page to browse: results/SCALE/index.html
	@$(BUILD) -- report
	@echo "open results/$(SCALE)/index.html in a browser"

all: $(if $(PROFILE),figures,$(INSTALLED))  ## figures, claims, tables, the paper and the page
	@$(ROOM)
	@$(BUILD) -- everything
	@$(PTQ) dev cost --scale $(SCALE)
	@$(PTQ) dev claims --scale $(SCALE) --figures "$(FIGURES)"

prefetch: $(INSTALLED)  ## download all that a build at SCALE takes from a network
	@$(BUILD) -- prefetch

backends: $(INSTALLED)  ## install GPTQModel, and compare it with llm-compressor
	@$(BUILD) -- backends

test: test-fast  ## the fast tests, then those that build at scale smoke
	@$(PYTEST) tests/workflow $(MORE:%=--ignore=%)

test-more: $(INSTALLED)  ## slow unit tests, and those with other tools and, where there is one, a cluster
	@$(PYTEST) -m slow $(MORE) tests/unit

test-fast: $(INSTALLED)  ## style, types and the fast unit tests, in about a minute
	@$(MAKE) --no-print-directory -j2 lint unit

test-slurm: $(INSTALLED) $(PLUGINS)  ## builds on a SLURM cluster that this machine is for a while (as root)
	@tests/slurm.sh && $(VENV)/bin/pytest -rs tests/workflow/test_slurm.py

unit: $(INSTALLED)
	@$(PYTEST) tests/unit -m 'not slow'

lint: $(INSTALLED)
	@$(VENV)/bin/ruff check -q . && $(VENV)/bin/ruff format -q --check .
	@$(VENV)/bin/snakefmt --check Snakefile workflow/Snakefile workflow/rules
	@$(VENV)/bin/mypy

sweep: $(INSTALLED)  ## train candidates for settings of a scale (SWEEP=regime|blocks|miniatures)
	@$(PTQ) dev sweep $(SWEEP)

chaos: $(INSTALLED)  ## random kills of builds, each followed by the same command (KILLS=30)
	@CHAOS_KILLS=$(KILLS) $(VENV)/bin/pytest tests/workflow/test_chaos.py -s

staleness: $(INSTALLED)  ## edits drawn at random, and what was missed or outdated needlessly (EDITS_SEED=)
	@EDITS=all $(VENV)/bin/pytest tests/workflow/test_staleness.py -s

locks: $(LOCKER)  ## update the locks in envs/ from pyproject.toml, with digests of files
	@PYTHONPATH=$(LOCKER) $(VENV)/bin/python envs/lock.py

# Not after the environment, which cannot be installed where its lock lacks something.
$(PLUGINS) $(LOCKER): $(VENV)/%: envs/%.txt | $(VENV)/bin/python
	@rm -rf $@.new && $(VENV)/bin/pip install -q --no-deps --require-hashes --target $@.new -r $<
	@rm -rf $@ && mv $@.new $@ && touch $@

# The seeds of the scale's file, unless others are given.
RELEASE_SEEDS = $(or $(SEEDS),$(shell $(VENV)/bin/python -c "import yaml; \
	print(*yaml.safe_load(open('config/scales/$(SCALE).yaml')).get('release_seeds') or ())"))
release: $(INSTALLED)  ## from a clean commit: all that the repository keeps of SCALE, audited
	@test -z "$$(git status --porcelain)" || { echo "error: the working tree has edits; commit them first" >&2; exit 1; }
	@$(MAKE) --no-print-directory all SEEDS="$(RELEASE_SEEDS)"
	@$(PTQ) audit --scale $(SCALE)
	@$(PTQ) release --scale $(SCALE) --figures "$(FIGURES)" $(if $(RELEASE_SEEDS),--more-seeds "$(RELEASE_SEEDS)")
	@$(PTQ) dev readme

clean:  ## remove everything built at SCALE
	@test "$(filter $(SCALES),$(firstword $(SCALE)))" = "$(SCALE)" -a -n "$(SCALE)" || \
		{ echo "error: SCALE is '$(SCALE)': must be one of $(SCALES)" >&2; exit 1; }
	rm -rf results/$(SCALE) figures/$(SCALE) paper/$(SCALE)

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "error: $(PYTHON) is older than 3.11; set PYTHON=python3.x" >&2; exit 1; }
	@$(ROOM)
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(INSTALLED): | $(VENV)/bin/python
	@echo "installing the locked environment into $(VENV) (minutes, once)"
	@rm -f $(VENV)/.installed*
	@$(VENV)/bin/python envs/install.py envs/main.txt .
	@touch $@
