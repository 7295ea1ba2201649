# `make` lists the targets.
SCALE ?= laptop
SCALES := $(basename $(notdir $(wildcard config/scales/*.yaml)))
UNBUILT = $(basename $(notdir $(shell grep -l '^note: never built' config/scales/*.yaml)))
FIGURES ?= all
SEEDS ?=
PYTHON ?= python3
WORKERS ?= 2
KILLS ?= 30
SWEEP ?= regime
VENV := .venv
PROFILE ?=
KNOWN := SCALE FIGURES SEEDS DEEP PROFILE PYTHON WORKERS KILLS SWEEP EDITS_SEED VENV
GIVEN := $(foreach each,$(MAKEOVERRIDES),$(if $(findstring =,$(each)),$(firstword $(subst =, ,$(subst :=,=,$(each))))))
WRONG := $(firstword $(filter-out $(KNOWN),$(GIVEN)))
ifneq ($(WRONG),)
$(error make has no variable '$(WRONG)'; it has: $(KNOWN); set variables of other programs before make)
endif
# A profile is a name in profiles/, or a path.
PLACE := $(if $(PROFILE),$(shell for each in "profiles/$(PROFILE)" "$(PROFILE)"; do \
	test ! -e "$$each" || { echo "$$each"; break; }; done))
# Folders with the packages of profiles for SLURM and of `make locks`.
PLUGINS := $(VENV)/slurm
LOCKER := $(VENV)/uv
ON_SLURM := $(if $(PLACE),$(shell grep -Erqs "^executor: *[\"']?slurm[\"']?( |$$)" "$(PLACE)" && echo $(PLUGINS)))
# Several checkouts may share an environment.
HERE = PYTHONPATH="workflow$(1)$${PYTHONPATH:+:$$PYTHONPATH}" $(VENV)/bin
PTQ = $(call HERE,)/ptq-dynamics
CHOICE = scale=$(SCALE) figures="$(FIGURES)" $(if $(SEEDS),more_seeds="$(SEEDS)") $(if $(DEEP),deep="$(DEEP)")
BUILD = $(call HERE,)/snakemake --config $(CHOICE)
SEND = $(if $(PROFILE),$(call HERE,:$(PLUGINS))/snakemake \
	--workflow-profile "$(PLACE)" --config $(CHOICE),$(BUILD))
# A full disk truncates compiled code, which Python does not repair.
ROOM = df -Pk . | awk 'END {for (i = 2; i <= NF; i++) if ($$i ~ /^[0-9]+%$$/) exit $$(i - 1) < 51200}' || \
	{ echo "error: less than 50 MB are left on the disk of this folder; free some space" >&2; exit 1; }
STATUS = $(PTQ) status --scale $(SCALE) --figures "$(FIGURES)" \
	$(if $(SEEDS),--more-seeds "$(SEEDS)")
# $(call MADE,OTHERS,WHERE,OUTCOMES): build figures and other targets, and print where they are.
# `status` is faster than Snakemake, and prints a wrong choice in one line.
define MADE
$(if $(PROFILE),$(if $(PLACE),,$(error PROFILE: no profile '$(PROFILE)'; there are: $(notdir $(wildcard profiles/*)))))@$(ROOM)
@start=$$(date +%s); end=$$($(STATUS) $(if $(1),--also "$(1)") 2>&1) || case "$$end" in \
	error:*) echo "$$end" >&2; exit 1;; \
	*) $(if $(1),$(BUILD),$(SEND)) -- figures $(1) || exit 1; s=$$(($$(date +%s) - start)); \
	test $$s -lt 120 && end="done in $$s s" || end="done in $$(((s + 30) / 60)) min";; esac; \
	$(if $(3),$(3) &&) echo "$$end: $(2)"
endef
OUTCOMES = $(PTQ) dev claims --scale $(SCALE) --figures "$(FIGURES)"
# A digest of project and locks, so that neither their times nor comments install anything.
INSTALLED := $(VENV)/.installed-$(shell sed -e 's/^\#.*//' -e 's/ *[ ]\#.*//' -e '/^ *$$/d' \
	pyproject.toml envs/main.txt envs/cuda.txt | cksum | cut -d ' ' -f 1)
# Tests of a file share a build.
PYTEST := $(VENV)/bin/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -rs --durations 40 --durations-min 5
# Tests that install other tools or a cluster.
MORE := tests/workflow/test_backends.py tests/workflow/test_slurm.py

# Otherwise each of a build's processes compiles the package.
unexport PYTHONDONTWRITEBYTECODE
# The packages of another Python would come in the place of the environment's.
unexport PYTHONHOME

# The home directory, where Snakemake and matplotlib keep caches, may be read-only.
ifneq ($(shell test -w "$$HOME" && echo yes),yes)
export XDG_CACHE_HOME ?= $(CURDIR)/.snakemake/cache
export MPLCONFIGDIR ?= $(CURDIR)/.snakemake/cache/matplotlib
endif

.PHONY: help install figures claims report paper all costs counts bench prefetch test test-fast test-more test-slurm test-gpu gpu-kit unit lint backends sweep chaos staleness locks release clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s%s\n", $$1, $$2}' "$(strip $(MAKEFILE_LIST))"
	@echo "  SCALE=$(subst $() ,|,$(filter-out $(UNBUILT),$(SCALES))) (now $(SCALE)); never built: $(UNBUILT)"
	@echo "  FIGURES=\"fig04 fig06\" (now $(FIGURES)), SEEDS=\"202 203\" (more seeds of headline figures)"
	@echo "  PROFILE=slurm (on a cluster: docs/cluster.md), DEEP=1 (verify every byte of the results)"

install: $(INSTALLED)  ## install the locked environment; all other targets do so by themselves

figures: $(INSTALLED) $(ON_SLURM)  ## build the missing or outdated figures
	$(call MADE,,figures/$(SCALE)/README.md shows all figures)

# With a profile, the cluster builds figures, and this machine the rest.
claims: $(if $(PROFILE),figures,$(INSTALLED))  ## figures, tables of numbers, and outcomes of the paper's claims
	$(call MADE,claims tables,results/$(SCALE)/tables/claims.md has all numbers,$(OUTCOMES))

report: $(if $(PROFILE),figures,$(INSTALLED))  ## the same, and a page to browse: results/SCALE/index.html
	$(call MADE,report,results/$(SCALE)/index.html is the page to browse,$(OUTCOMES))

paper: $(if $(PROFILE),figures,$(INSTALLED))  ## figures, claims and tables as one PDF: paper/SCALE/paper.pdf
	$(call MADE,paper,paper/$(SCALE)/paper.pdf has all results)

all: $(if $(PROFILE),figures,$(INSTALLED))  ## figures, claims, tables, the page and the paper
	$(call MADE,claims tables paper report,results/$(SCALE)/index.html is the page to browse; paper/$(SCALE)/paper.pdf is the paper,$(OUTCOMES))

costs: $(INSTALLED)  ## print what a build took: jobs, tokens, and hours by kind of job
	@$(PTQ) dev cost --scale $(SCALE)

bench: $(INSTALLED)  ## compare the speed of training at SCALE with that of a plain loop
	@$(call HERE,)/python tests/bench.py $(SCALE)

counts: $(INSTALLED)  ## count the text of every scale, after an edit of it or of the lock (10 min)
	@$(call HERE,)/python tests/counts.py

clean:  ## remove everything built at SCALE
	@test "$(filter $(SCALES),$(firstword $(SCALE)))" = "$(SCALE)" -a -n "$(SCALE)" || \
		{ echo "error: SCALE is '$(SCALE)': must be one of $(SCALES)" >&2; exit 1; }
	rm -rf results/$(SCALE) figures/$(SCALE) paper/$(SCALE)

prefetch: $(INSTALLED)  ## download everything that a build at SCALE reads from a network
	@$(BUILD) -- prefetch

test: test-fast  ## the fast tests, then those that build at scale smoke
	@$(PYTEST) tests/workflow $(MORE:%=--ignore=%)

test-fast: $(INSTALLED)  ## style, types and the fast unit tests, in about a minute
	@$(MAKE) --no-print-directory -j2 lint unit

test-more: $(INSTALLED)  ## slow unit tests, and tests with other tools and a cluster
	@$(PYTEST) -m slow $(MORE) tests/unit

test-slurm: $(INSTALLED) $(PLUGINS)  ## make this machine a SLURM cluster for some minutes, and build on it (as root)
	@tests/slurm.sh && $(VENV)/bin/pytest -rs tests/workflow/test_slurm.py

test-gpu: $(INSTALLED)  ## tests that need a GPU, in minutes; without one they are skipped
	@$(VENV)/bin/pytest -n 0 -rs -m gpu --durations 12 tests/gpu

gpu-kit: $(INSTALLED)  ## pack what a GPU machine without network needs into .gpu (docs/machines.md)
	@$(VENV)/bin/python tests/gpu/pack.py

unit: $(INSTALLED)
	@$(PYTEST) tests/unit -m 'not slow'

lint: $(INSTALLED)
	@$(VENV)/bin/ruff check -q . && $(VENV)/bin/ruff format -q --check .
	@$(VENV)/bin/snakefmt --check Snakefile workflow/Snakefile workflow/rules
	@$(VENV)/bin/mypy

backends: $(INSTALLED)  ## install GPTQModel and AutoGPTQ, and compare them with llm-compressor
	@$(BUILD) -- backends

sweep: $(INSTALLED)  ## train candidates for settings of a scale (SWEEP=regime|blocks|miniatures)
	@$(PTQ) dev sweep $(SWEEP)

chaos: $(INSTALLED)  ## kill builds at random, each followed by the same command (KILLS=30)
	@CHAOS_KILLS=$(KILLS) $(VENV)/bin/pytest tests/workflow/test_chaos.py -s

staleness: $(INSTALLED)  ## make random edits, and print missed and needless rebuilds (EDITS_SEED=)
	@EDITS=all $(VENV)/bin/pytest tests/workflow/test_staleness.py -s

locks: $(LOCKER)  ## update the locks in envs/ from pyproject.toml, with digests of files
	@PYTHONPATH=$(LOCKER) $(VENV)/bin/python envs/lock.py

# A wrong lock of the environment must not prevent `make locks`.
$(PLUGINS) $(LOCKER): $(VENV)/%: envs/%.txt | $(VENV)/bin/python
	@rm -rf $@.new && $(VENV)/bin/python -I envs/install.py $< --target $@.new
	@rm -rf $@ && mv $@.new $@ && touch $@

RELEASE_SEEDS = $(or $(SEEDS),$(shell $(VENV)/bin/python -c "import yaml; \
	print(*yaml.safe_load(open('config/scales/$(SCALE).yaml')).get('release_seeds') or ())"))
release: $(INSTALLED)  ## build, audit and write the released files of SCALE, from a clean commit
	@edits=$$(git status --porcelain) && test -z "$$edits" || { echo "error: the working tree has edits; commit them first" >&2; exit 1; }
	@$(MAKE) --no-print-directory all SEEDS="$(RELEASE_SEEDS)"
	@$(PTQ) audit --scale $(SCALE)
	@$(PTQ) release --scale $(SCALE) --figures "$(FIGURES)" $(if $(RELEASE_SEEDS),--more-seeds "$(RELEASE_SEEDS)")
	@$(PTQ) dev readme

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "error: $(PYTHON) is older than 3.11; set PYTHON=python3.x" >&2; exit 1; }
	@case "$$PWD" in *[\"\`\$$\\{}:]*) echo "error: pip cannot install into a folder with one of \" \` $$ \\ { } : in its path;" \
		"move $$PWD" >&2; exit 1;; esac
	@$(ROOM)
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(INSTALLED): | $(VENV)/bin/python
	@echo "installing the locked environment into $(VENV) (minutes, once)"
	@rm -f $(VENV)/.installed*
	@$(VENV)/bin/python -I envs/install.py envs/main.txt --project .
	@touch $@
