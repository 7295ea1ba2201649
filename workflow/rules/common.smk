# What the rules share: the plan, and how a job finds its specification and its inputs.
import os
import re
import sys
from pathlib import Path

# The code beside these rules, whichever checkout the environment was installed from.
HERE = Path(str(workflow.current_basedir)).parent
sys.path.insert(0, str(HERE))

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.graph import build
from ptq_dynamics.graph.site import BY_NAME, PLACES
from ptq_dynamics.report.planning import planned

ROOT = Path(os.path.relpath(HERE.parent))
# The folder of a build may bring configuration of its own.
CONFIG = Path("config") if Path("config/runs.yaml").is_file() else ROOT / "config"


configfile: str(CONFIG / "config.yaml")


try:
    build.prepare(HERE.parent, is_main=workflow.is_main_process)
    plan = planned(config, CONFIG, ROOT)
except Problem as problem:
    sys.exit(f"error: {problem}")

# The output of a rule: the manifest of its job's result.
manifest = plan.site.pattern
# A job compares its specification and inputs with the record of its result before it does more.
RUN = "python -m ptq_dynamics.engine.run {input.spec} --devices {resources.devices}"


def planned_by(give, *arguments, **wildcards):
    """What a function of the plan gives; a problem ends the build."""
    try:
        return give(*arguments, **wildcards)
    except Problem as problem:
        sys.exit(f"error: {problem}")


def job(kind, wildcards):
    """The job that a rule makes for some wildcards."""
    return planned_by(plan.job, kind, **dict(wildcards.items()))


def spec(kind):
    """The specification of a rule's job; the manifest of an outdated result is removed."""

    def found(wildcards):
        own = job(kind, wildcards)
        if workflow.is_main_process:
            plan.site.settle(own)
        return str(own.paths.spec)

    return found


def inputs(kind, *labels):
    """Manifests of the inputs of a rule's job: under the labels that begin with these words, or all."""
    return lambda wildcards: job(kind, wildcards).under(*labels)


def asked(kind):
    """Resources of a stage's jobs; they grow with every attempt, and with the size of the model."""

    def request(name, least=0):
        return lambda wildcards, attempt: plan.resources.ask(
            kind, attempt, dict(wildcards.items())
        ).get(name, least)

    found = {name: request(name) for name in plan.resources.ask(kind)}
    # On one machine the devices that a job leases, where there are any.
    found["devices"] = request("gpu", 1) if kind in ON_DEVICE else 0
    return found


onstart:
    build.begin(plan, local=workflow.local_exec)


onsuccess:
    build.finish(plan)


onerror:
    build.finish(plan)
