# Every figure from its training runs, checkpoints, averages, quantizations and evaluations.
# What is built is in config/, how in workflow/ptq_dynamics/; the rules only connect the two.
import os
import re
import sys
from itertools import chain
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.utils import min_version

from ptq_dynamics.config import load
from ptq_dynamics.plan import Plan
from ptq_dynamics.problem import Problem
from ptq_dynamics.jobs.warm.launch import start as start_warm

min_version("9.27")


configfile: f"{workflow.basedir}/config/config.yaml"


# Jobs run in the environment that Snakemake runs in, activated or not.
shell.prefix(f"PATH={Path(sys.executable).parent}:$PATH; ")

try:
    root = Path(os.path.relpath(workflow.basedir))
    plan = Plan(load(config, root / "config"), root)
except Problem as problem:
    raise WorkflowError(str(problem)) from None


onstart:
    if plan.site.config.scale.warm:
        # It takes as long to get ready as a few jobs to import what they need.
        if len(list(workflow.dag.needrun_jobs())) > 2 * workflow.cores:
            start_warm()
        # To keep within 100 new jobs a second, Snakemake 9.27 looks for jobs to start once a second
        # for every job that it has started so far: after 600 jobs, that is most of a core.
        workflow.scheduler.job_rate_limiter = None


def any_of(*names):
    return "|".join(map(re.escape, chain(*names)))


wildcard_constraints:
    corpus=any_of(plan.site.config.scale.corpora),
    run=any_of(plan.site.config.runs.runs),
    average=any_of(plan.site.config.runs.averages),
    trajectory=any_of(plan.site.config.runs.runs, plan.site.config.runs.averages),
    quantizer=any_of(plan.site.config.quantizers),
    method=any_of(plan.site.config.quantizers, ["fp"]),
    figure=any_of(plan.site.config.figures),
    probe="sharpness|spectrum",
    seed="[0-9]+",
    shard=r"[A-Za-z0-9._-]+",
    steps="[0-9]+",


RESULTS = plan.site.results
THREADS = plan.site.config.scale.threads


localrules:
    figures,


rule figures:
    default_target: True
    input:
        plan.figures.targets(),


include: "workflow/rules/train.smk"
include: "workflow/rules/quantize.smk"
include: "workflow/rules/measure.smk"
include: "workflow/rules/backends.smk"
include: "workflow/rules/geometry.smk"
include: "workflow/rules/figures.smk"
