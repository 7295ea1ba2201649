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


configfile: str(CONFIG / "config.yaml")


# The plan. Snakemake reads profiles/default/config.yaml by itself: times of files alone decide what
# runs, and planning sets them. plan/handlers.py:prepare makes sure that this code runs.
# config/loading.py:load reads config/*.yaml as typed data; plan/catalogue.py:resolve and
# plan/catalogue.py:leave_out keep what the scale has. plan/__init__.py:Plan.targets asks the
# planner of figures for jobs (plan/figure_jobs.py:FigureJobs.figure). It asks the planners of what
# figures read, such as plan/measurement_jobs.py:MeasurementJobs.measure, and each adds its jobs by
# the path of the manifest (plan/site.py:Site.make). For an output, Snakemake then asks the
# functions below for the inputs of its rule (rules/*.smk); they find the job by rule and wildcards
# (Plan.job).
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
# The life of a job. `settled_spec` below writes its specification as JSON, and removes the manifest
# of an outdated result (engine/job.py:settle), so that Snakemake runs the job. The
# command reads the specification (engine/run.py:main) and executes the job
# (engine/execute.py:execute), in this process or in a child of the warm process, which has imported
# torch (plan/handlers.py:begin starts it if many results are outdated; engine/warm.py:serve). If
# the result is `stale` (its record has another specification, or other digests of inputs), the job
# calls `run(context)` of its stage, a module such as train/train.py. The context has the settings,
# the manifests of the inputs by label, and a folder. The manifest lists the files that the
# stage writes there, with digests, and the facts that `run` returns. The record has the same, the
# specification, versions, machine and time. engine/execute.py:publish moves all to the result's
# folder, the manifest last; the next job reads files and facts there.
# Snakemake removes the log before a job, and shows it even if the job ends before it writes one.
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
            plan.site.settle_all(job)
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
    handlers.begin(plan, local=workflow.local_exec)


onsuccess:
    handlers.finish(plan)


onerror:
    handlers.finish(plan)
