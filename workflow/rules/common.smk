# The plan, and functions that give rules their specifications, inputs and resources.
import os
import re
import sys
from pathlib import Path

HERE = Path(str(workflow.current_basedir)).parent
sys.path.insert(0, str(HERE))

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config.loading import load
from ptq_dynamics.figures.captions import write_page
from ptq_dynamics.plan import RULES, Plan, handlers

ROOT = Path(os.path.relpath(HERE.parent))
# A project has its own configuration.
CONFIG = Path("config") if Path("config/runs.yaml").is_file() else ROOT / "config"


# Defaults of scale and figures; `load` reads all other files.
configfile: str(CONFIG / "config.yaml")


# docs/how-it-works.md follows `make figures` through this file.
try:
    handlers.prepare(HERE.parent, is_main=workflow.is_main_process)
    plan = Plan(load(config, CONFIG), ROOT)
    # Words of figures change no job.
    if workflow.is_main_process:
        write_page(plan.site.config.figures, Path(plan.site.pictures))
except Problem as problem:
    sys.exit(f"error: {problem}")

SCALE = plan.site.config.choice.scale
THREADS = plan.site.config.scale.threads  # of jobs that compute
# With --sdm conda; otherwise jobs run in the environment of Snakemake. It formats this path.
ENVIRONMENT = str(HERE.resolve().parent / "envs/main.yaml")
ENVIRONMENT = ENVIRONMENT.replace("{", "{{").replace("}", "}}")
# A job calls `run` of a module, the stage that plan/*_jobs.py names for its rule (engine/execute.py).
# `handlers.prepare` sets PATH, so that `python` is this one. Snakemake removes the log before a job.
JOB = ": >> {log:q}; python -m ptq_dynamics.engine.run {input.spec:q} --devices {resources.devices}"


def or_exit(give, *arguments, **wildcards):
    """Call a function of the plan; a problem ends the build."""
    try:
        return give(*arguments, **wildcards)
    except Problem as problem:
        sys.exit(f"error: {problem}")


def settled_spec(kind):
    """Return a job's specification, written; Snakemake then runs the job if it is outdated."""

    def specification(wildcards):
        job = or_exit(plan.job, kind, **dict(wildcards.items()))
        if workflow.is_main_process:
            plan.settle(job)
        return str(job.paths.spec)

    return specification


def inputs_of(kind, *words):
    """Return the inputs of a rule: the specification, and manifests by the first word of their
    labels; labels of `others` begin with the kind of a probe, or with a trajectory."""

    def named(name):
        def manifests(wildcards):
            job, inputs = or_exit(plan.job, kind, **dict(wildcards.items())), []
            for label, paths in job.inputs.items():
                word = re.split("[ .]", label)[0]
                word = word if word in words else "others"
                assert word in words, f"rule {kind} has no input for {label}"
                inputs += paths if word == name else []
            return inputs

        return manifests

    return {**{word: named(word) for word in words}, "spec": settled_spec(kind)}


def requests(kind, devices=0):
    """Return resources of jobs, which grow with the attempt and the size of the model; `devices`
    are those that a job leases on one machine."""

    def request(name, least=0):
        return lambda wildcards, attempt: plan.requests(
            kind, attempt, dict(wildcards.items())
        ).get(name, least)

    requested = {name: request(name) for name in plan.requests(kind)}
    return {**requested, "devices": request("gpu", devices) if devices else 0}


onstart:
    # With many outdated results, it starts the warm process, which forks the jobs.
    handlers.begin(plan, local=workflow.local_exec)


onsuccess:
    or_exit(handlers.finish, plan)
    or_exit(handlers.require_planned, plan)


onerror:
    or_exit(handlers.finish, plan)
