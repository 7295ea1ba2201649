# The plan, and functions that give rules their specifications, inputs and resources.
import os
import re
import sys
from pathlib import Path

HERE = Path(str(workflow.current_basedir)).parent
sys.path.insert(0, str(HERE))

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.graph import build
from ptq_dynamics.graph.site import BY_NAME, COMPUTING, PLACES
from ptq_dynamics.report.planning import planned

ROOT = Path(os.path.relpath(HERE.parent))
# A project has its own configuration.
CONFIG = Path("config") if Path("config/runs.yaml").is_file() else ROOT / "config"


configfile: str(CONFIG / "config.yaml")


try:
    build.prepare(HERE.parent, is_main=workflow.is_main_process)
    plan = planned(config, CONFIG, ROOT)
except Problem as problem:
    sys.exit(f"error: {problem}")

manifest = plan.site.pattern
RUN = "python -m ptq_dynamics.engine.run {input.spec:q} --devices {resources.devices}"


def planned_by(give, *arguments, **wildcards):
    """Call a function of the plan; a problem ends the build."""
    try:
        return give(*arguments, **wildcards)
    except Problem as problem:
        sys.exit(f"error: {problem}")


def job(kind, wildcards):
    """Return the job of a rule with these wildcards."""
    return planned_by(plan.job, kind, **dict(wildcards.items()))


def spec(kind):
    """Return the specification of a rule's job; remove the manifest of an outdated result."""

    def found(wildcards):
        own = job(kind, wildcards)
        if workflow.is_main_process:
            plan.site.settle(own)
        return str(own.paths.spec)

    return found


def inputs(kind):
    """Return manifests of the inputs of a rule's jobs."""
    return lambda wildcards: job(kind, wildcards).needs


def asked(kind):
    """Return resources of a rule's jobs, which grow with the attempt and the size of the model."""

    def request(name, least=0):
        return lambda wildcards, attempt: plan.resources.ask(
            kind, attempt, dict(wildcards.items())
        ).get(name, least)

    found = {name: request(name) for name in plan.resources.ask(kind)}
    # Devices that a job leases on one machine.
    found["devices"] = request("gpu", 1) if kind in ON_DEVICE else 0
    return found


onstart:
    build.begin(plan, local=workflow.local_exec)


onsuccess:
    build.finish(plan)


onerror:
    build.finish(plan)
