# `make` lists the targets. docs/how-it-works.md follows `make figures` from here to a job.
SCALE ?= laptop
FIGURES ?= all
PYTHON ?= python3
WORKERS ?= 2
VENV := .venv
KNOWN := SCALE FIGURES SEEDS DEEP PROFILE PYTHON WORKERS TESTS KILLS EDITS_SEED VENV
WRONG := $(filter-out $(KNOWN),$(foreach name,$(.VARIABLES),$(if $(filter command,$(origin $(name))),$(name))))
$(if $(WRONG),$(error make has no variable '$(WRONG)'; it has: $(KNOWN); set variables of other programs before make))
# Packages of profiles for SLURM, and of `make locks`, in folders of their own.
PLUGINS := $(VENV)/slurm
LOCKER := $(VENV)/uv
SLURM := $(if $(PROFILE),$(shell grep -Erqs "^executor: *[\"']?slurm[\"']?( |$$)" "profiles/$(PROFILE)" "$(PROFILE)" && echo $(PLUGINS)))
# Several checkouts may share an environment.
HERE = PYTHONPATH="workflow$(if $(PROFILE),:$(PLUGINS))$${PYTHONPATH:+:$$PYTHONPATH}" $(VENV)/bin
PTQ = $(HERE)/ptq-dynamics
CHOICE = --scale "$(SCALE)" --figures "$(FIGURES)" $(if $(SEEDS),--more-seeds "$(SEEDS)")
OUTCOMES = $(PTQ) dev claims $(CHOICE)
BUILD = $(HERE)/snakemake $(if $(PROFILE),--workflow-profile "$(PROFILE)") --config scale="$(SCALE)" \
	figures="$(FIGURES)" $(if $(SEEDS),more_seeds="$(SEEDS)") $(if $(DEEP),deep="$(DEEP)")
# A digest of project and locks, so that neither their times nor comments install anything.
INSTALLED := $(VENV)/.installed-$(shell sed -e 's/^\#.*//' -e 's/ *[ ]\#.*//' -e '/^ *$$/d' \
	pyproject.toml envs/main.txt envs/cuda.txt | cksum | cut -d ' ' -f 1)
# Tests of a file share a build. MORE are those that install other tools or a cluster; CI has its own TESTS.
PYTEST := $(VENV)/bin/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -rs --durations 40 --durations-min 5
MORE := tests/workflow/test_backends.py tests/workflow/test_slurm.py
# Otherwise each process of a build compiles the package, or takes the packages of another Python.
unexport PYTHONDONTWRITEBYTECODE PYTHONHOME
# The home directory, where Snakemake and matplotlib keep caches, may be read-only.
ifneq ($(shell test -w "$$HOME" && echo yes),yes)
export XDG_CACHE_HOME ?= $(CURDIR)/.snakemake/cache
export MPLCONFIGDIR ?= $(CURDIR)/.snakemake/cache/matplotlib
endif

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s%s\n", $$1, $$2}' "$(strip $(MAKEFILE_LIST))"
	@cd config/scales; echo "  SCALE=$$(grep -L '^note: never built' * | sed 's/.yaml//' | paste -sd '|' -) (now $(SCALE));" \
		"never built:" $$(grep -l '^note: never built' * | sed 's/.yaml//')
	@echo "  FIGURES=\"fig04 fig06\" (now $(FIGURES)), SEEDS=\"202 203\" (more seeds of headline figures)"
	@echo "  PROFILE=slurm (on a cluster: docs/cluster.md), DEEP=1 (verify every byte of the results)"

install:  ## install the locked environment; all other targets do so by themselves
figures: RUN = $(BUILD) -- figures && echo figures/$(SCALE)/README.md shows all figures  ## build the missing or outdated figures
claims: RUN = $(BUILD) -- figures claims tables && $(OUTCOMES) && echo results/$(SCALE)/tables/claims.md has all numbers  ## figures, tables of numbers, and outcomes of the paper's claims
report: RUN = $(BUILD) -- figures report && $(OUTCOMES) && echo results/$(SCALE)/index.html is the page  ## the same, and a page to browse: results/SCALE/index.html
paper: RUN = $(BUILD) -- figures paper && echo paper/$(SCALE)/paper.pdf has all results  ## figures, claims and tables as one PDF: paper/SCALE/paper.pdf
all: RUN = $(BUILD) -- figures claims tables paper report && $(OUTCOMES) && echo results/$(SCALE)/index.html is the page  ## figures, claims, tables, the page and the paper
bench: RUN = $(HERE)/python tests/bench.py $(SCALE)  ## compare the speed of training at SCALE with that of a plain loop
counts: RUN = $(HERE)/python tests/counts.py  ## count the text of every scale, after an edit of it or of the lock (10 min)
prefetch: RUN = $(BUILD) -- prefetch  ## download everything that a build at SCALE reads from a network
test: RUN = $(PYTEST) $(or $(TESTS),tests/workflow $(MORE:%=--ignore=%))  ## the fast tests, then those that build at scale smoke
test-fast: RUN = $(MAKE) --no-print-directory -j2 lint unit  ## style, types and the fast unit tests, in about a minute
test-more: RUN = $(PYTEST) -m slow $(MORE) tests/unit  ## slow unit tests, and tests with other tools and a cluster
test-slurm: RUN = tests/slurm.sh && $(PYTEST) tests/workflow/test_slurm.py  ## make this machine a SLURM cluster for some minutes, and build on it (as root)
test-gpu: RUN = $(VENV)/bin/pytest -n 0 -rs -m gpu --durations 12 tests/gpu  ## tests that need a GPU, in minutes; without one they are skipped
gpu-kit: RUN = $(VENV)/bin/python tests/gpu/pack.py  ## pack what a GPU machine without network needs into .gpu (docs/machines.md)
unit: RUN = $(PYTEST) tests/unit -m 'not slow'
lint: RUN = $(VENV)/bin/ruff check -q . && $(VENV)/bin/ruff format -q --check . && $(VENV)/bin/mypy && \
	$(VENV)/bin/snakefmt --check Snakefile workflow/Snakefile workflow/rules
backends: RUN = $(BUILD) -- backends  ## install GPTQModel and AutoGPTQ, and compare them with llm-compressor
chaos: RUN = $(VENV)/bin/pytest tests/workflow/test_chaos.py -s  ## kill builds at random, each followed by the same command (KILLS=30)
staleness: RUN = EDITS=all $(VENV)/bin/pytest tests/workflow/test_staleness.py -s  ## make random edits, and print missed and needless rebuilds (EDITS_SEED=)
locks: RUN = PYTHONPATH=$(LOCKER) $(VENV)/bin/python envs/lock.py  ## update the locks in envs/ from pyproject.toml, with digests of files
release: RUN = $(PTQ) release --build $(CHOICE)  ## build, audit and write the released files of SCALE, from a clean commit
clean:  ## remove everything built at SCALE
	@test -f "config/scales/$(SCALE).yaml" || { echo "error: SCALE is '$(SCALE)': make help lists all" >&2; exit 1; }
	rm -rf results/$(SCALE) figures/$(SCALE) paper/$(SCALE)

# A target with a command RUN needs the environment, and some need more.
TARGETS := $(shell sed -n 's/^\([a-z-]*\): RUN.*/\1/p' "$(strip $(MAKEFILE_LIST))")
test: test-fast
test-slurm: $(PLUGINS)
locks: $(LOCKER)
figures claims report paper all: $(SLURM)
install $(filter-out locks,$(TARGETS)): $(INSTALLED)
$(TARGETS):
	@$(RUN)
.PHONY: help install clean $(TARGETS)

# A wrong lock of the environment must not prevent `make locks`.
$(PLUGINS) $(LOCKER): $(VENV)/%: envs/%.txt | $(VENV)/bin/python
	@rm -rf $@.new && $(VENV)/bin/python -I envs/install.py $< --target $@.new
	@rm -rf $@ && mv $@.new $@ && touch $@
$(VENV)/bin/python:
	@$(PYTHON) -I "$(patsubst %Makefile,%,$(strip $(MAKEFILE_LIST)))envs/create.py" $(VENV)
$(INSTALLED): | $(VENV)/bin/python
	@echo "installing the locked environment into $(VENV) (minutes, once)"
	@rm -f $(VENV)/.installed*
	@$(VENV)/bin/python -I envs/install.py envs/main.txt --project .
	@touch $@
