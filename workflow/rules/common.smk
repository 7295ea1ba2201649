# What the rules share: the plan, and how a job finds its specification and its inputs.
import os
import re
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

# The code beside these rules, whichever checkout the environment was installed from.
HERE = Path(str(workflow.current_basedir)).parent
sys.path.insert(0, str(HERE))

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.graph import build
from ptq_dynamics.graph.site import PLACES
from ptq_dynamics.report.planning import planned

ROOT = Path(os.path.relpath(HERE.parent))
# A workflow that imports this one may bring configuration of its own.
IS_MODULE = not workflow.modifier.is_main_snakefile()
CONFIG = (
    Path("config")
    if IS_MODULE and Path("config/runs.yaml").is_file()
    else ROOT / "config"
)


configfile: str(CONFIG / "config.yaml")


try:
    build.prepare(HERE.parent, is_main=workflow.is_main_process)
    plan = planned(config, CONFIG, ROOT)
except Problem as problem:
    raise WorkflowError(str(problem)) from None

# A job compares its specification and inputs with the record of its result before it does more.
RUN = "python -m ptq_dynamics.engine.run {input.spec} --devices {resources.devices}"


def job(name, wildcards):
    """The job that a rule makes for some wildcards."""
    try:
        return plan.job(name, **dict(wildcards.items()))
    except Problem as problem:
        raise WorkflowError(str(problem)) from None


def spec(name):
    """The specification of a rule's job; the manifest of an outdated result is removed."""

    def found(wildcards):
        own = job(name, wildcards)
        if workflow.is_main_process:
            plan.site.settle(own)
        return str(own.paths.spec)

    return found


def inputs(name):
    """Manifests of all that a rule's job reads."""
    return lambda wildcards: job(name, wildcards).needs


def asked(name):
    """Resources of a rule's jobs; they grow with every attempt, and with the size of the model."""

    def request(key):
        return lambda wildcards, attempt: plan.resources.ask(
            name, attempt, trajectory_of(wildcards)
        ).get(key, 0)

    return {key: request(key) for key in plan.resources.ask(name)}


def trajectory_of(wildcards):
    """The trajectory that a job is about, if it is about one."""
    names = ("trajectory", "run", "public", "average")
    return next((wildcards[name] for name in names if name in wildcards.keys()), None)


def threads(name):
    """Threads of a rule's jobs: a corpus takes all cores, since all wait for it; but a cluster has no
    number of cores that jobs share."""
    is_remote = workflow.remote_exec or workflow.resource_settings.nodes is not None
    cores = None if is_remote else workflow.resource_settings.cores
    return name == "corpus" and cores or plan.resources.threads(name)


onstart:
    build.begin(plan, local=workflow.local_exec)


onsuccess:
    build.finish(plan)


onerror:
    build.finish(plan)
