# What the rules share: the plan, and how jobs are started.
import os
import re
import shlex
import sys
from collections import Counter
from functools import cache
from itertools import chain
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.persistence import PersistenceBase
from snakemake.settings.types import DeploymentMethod

# The code beside these rules, whichever checkout the environment was installed from.
HERE = Path(str(workflow.current_basedir)).parent
if HERE.is_dir():
    sys.path.insert(0, str(HERE))

from ptq_dynamics.config import load
from ptq_dynamics.jobs import builds, checkout, record, signals
from ptq_dynamics.jobs.current import Results
from ptq_dynamics.jobs.handover import Handover
from ptq_dynamics.jobs.paths import Paths
from ptq_dynamics.jobs.verified import Verifier
from ptq_dynamics.jobs.warm.launch import start as start_warm
from ptq_dynamics.measure.names import FULL_PRECISION, PROBES
from ptq_dynamics.plan import Plan
from ptq_dynamics.plan.due import Due
from ptq_dynamics.problem import Problem

IS_MODULE = not workflow.modifier.is_main_snakefile()
USES_CONDA = DeploymentMethod.CONDA in workflow.deployment_settings.deployment_method
ROOT = Path(os.path.relpath(checkout.ROOT))
# A workflow that imports this one may bring configuration of its own.
OWN = IS_MODULE and Path("config/runs.yaml").is_file()
CONFIG = Path("config") if OWN else ROOT / "config"


# Snakemake would print where it stood. Once it runs jobs, `builds.pass_signals_on` answers.
if workflow.is_main_process:
    signals.leave_at_once("interrupted while planning; run the same command again")


configfile: str(CONFIG / "config.yaml")


try:
    checkout.check(HERE.parent)
    plan = Plan(load(config, CONFIG), ROOT)
except Problem as problem:
    raise WorkflowError(str(problem)) from None

# Jobs run this code too: in the environment that Snakemake runs in, activated or not, or in the one
# that it makes for them, which leaves PYTHONPATH out.
if USES_CONDA:
    shell.prefix(f"export PYTHONPATH={shlex.quote(str(checkout.SOURCES))}; ")
else:
    os.environ.update(checkout.environment())

# Snakemake 9.27 imports pandas, a sixth of a start with nothing to do, to look for tables among
# params; those of this workflow are paths.
if not IS_MODULE:
    PersistenceBase._serialize_param_pandas = PersistenceBase._serialize_param_builtin

# Their specifications are too long for a command line.
handover = Handover(Path(".snakemake/ptq-dynamics"))
RUN = "python -m ptq_dynamics.jobs.run --if-stale --job {params.job}"


@cache
def forced():
    """Rules and files that the command line forces, read before `needs` adds what is due."""
    return workflow.dag.forcerules | workflow.dag.forcefiles


@cache
def due():
    """Which jobs are due, as records say; a dry run writes nothing down."""
    verifier = Verifier(
        deep=plan.site.config.choice.deep, remembers=not workflow.dryrun
    )
    return Due(plan.site, Results(verifier))


def needs(job):
    """Inputs of a job. Records, not times of files, decide whether it runs. Where the command line
    forces something, all that follows is planned, and what is current ends at once.
    """
    everything = bool(forced())
    if due().is_due(job):
        workflow.dag.forcefiles.add(job.manifest)
    elif not everything:
        return [ancient(path) for path in job.needs]
    # Snakemake 9.27 follows them, and nothing else, from a job that runs to the next.
    return job.needs


def runs_again(job):
    """Whether a job of Snakemake runs even where its result is current."""
    own = handover.job(job.params.get("job"))
    is_forced = job.rule in forced() or not forced().isdisjoint(job.output)
    return is_forced or own is not None and due().is_damaged(own)


def prepare():
    """Get ready for the jobs that are about to run."""
    jobs = list(workflow.dag.needrun_jobs())
    try:
        builds.claim(
            Path(".snakemake/ptq-dynamics-builds"),
            chain.from_iterable(job.output for job in jobs),
            chain.from_iterable(job.input for job in jobs),
        )
        due().note_moves()
        handover.write({job.params.get("job"): runs_again(job) for job in jobs})
    except (Problem, OSError) as problem:
        raise WorkflowError(str(problem)) from None
    builds.pass_signals_on()
    record.refresh()
    if plan.site.config.scale.warm and not USES_CONDA:
        # It takes as long to get ready as a few jobs to import what they need.
        if len(jobs) > 2 * workflow.cores:
            own = filter(None, (handover.job(job.params.get("job")) for job in jobs))
            uses = Counter(chain.from_iterable(job.libraries for job in own))
            start_warm([library for library, count in uses.items() if count > 1])
        # To keep within 100 new jobs a second, Snakemake 9.27 looks for jobs to start once a second
        # for every job that it has started so far: after 600 jobs, that is most of a core.
        workflow.scheduler.job_rate_limiter = None


onstart:
    prepare()


if IS_MODULE:
    # Snakemake starts a build with the hook of the importing workflow alone, which may stand before
    # or after the import.
    register, earlier = workflow.onstart, workflow._onstart
    workflow.onstart = lambda theirs: register(lambda log: (theirs(log), prepare()))
    workflow._onstart = lambda log: (earlier(log), prepare())


def any_of(*names):
    """A wildcard that is one of these names."""
    return "|".join(map(re.escape, chain(*names)))
