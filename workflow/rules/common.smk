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
from snakemake.logging import logger
from snakemake.persistence import PersistenceBase
from snakemake.settings.enums import Quietness
from snakemake.settings.types import DeploymentMethod

# The code beside these rules, whichever checkout the environment was installed from.
HERE = Path(str(workflow.current_basedir)).parent
if HERE.is_dir():
    sys.path.insert(0, str(HERE))

from ptq_dynamics.config import HarnessTask, MadeTask, load
from ptq_dynamics.engine import builds, checkout, devices, repository, signals, telling
from ptq_dynamics.engine.current import Results
from ptq_dynamics.engine.handover import Handover
from ptq_dynamics.engine.paths import Paths
from ptq_dynamics.engine.verified import Verifier
from ptq_dynamics.engine.warm.launch import start as start_warm
from ptq_dynamics.measure.names import FULL_PRECISION, PROBES
from ptq_dynamics.graph import Plan, measured
from ptq_dynamics.graph.due import Due
from ptq_dynamics.base.problem import Problem, is_full_disk
from ptq_dynamics.report.groups import caption, group, title
from ptq_dynamics.report.planning import Report

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
    pages = Report(plan)
except Problem as problem:
    raise WorkflowError(str(problem)) from None

# On a cluster there is no number of cores that all jobs share: neither where the build is started,
# with whichever profile, nor in a job, where Snakemake plans again.
IS_REMOTE = workflow.remote_exec or workflow.resource_settings.nodes is not None
THREADS = plan.site.config.scale.threads
CORES = THREADS if IS_REMOTE else workflow.resource_settings.cores or THREADS

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


def keep(persistence, path):
    """Leave a manifest of a job that failed as it is, which the job writes last and at once: a job
    that is killed after that has its result. Snakemake 9.27 would put the earlier one back.
    """
    persistence.cleanup_backup(path)
    return False


if not IS_MODULE:
    PersistenceBase.restore_output = keep

# What says how this build goes, once it runs jobs.
tellings = []

# Their specifications are too long for a command line.
handover = Handover(Path(".snakemake/ptq-dynamics"))
RUN = "python -m ptq_dynamics.engine.run --if-stale --job {params.job}"
# A cluster takes --jobs; of the executor itself nothing is known yet.
IS_LOCAL = workflow.resource_settings.nodes is None
if IS_LOCAL:
    RUN += " --counted"
RUN_ON_DEVICE = f"{RUN} --devices {{resources.devices}}"
RUN_SPREAD = f"{RUN_ON_DEVICE} {{params.spread}}"
RUN_TOGETHER = f"{RUN_ON_DEVICE} {{params.together}}"


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


# Clusters ask what jobs need, and limits that --resources sets; else nothing does, and Snakemake 9.27
# would take a twentieth more time to plan.
LIMITED = {*workflow.global_resources} - {"_cores", "_nodes"}
IS_ASKED = not IS_LOCAL or bool(LIMITED)


@cache
def known():
    """Resources of jobs, as far as can be by what records of the scale say."""
    return measured.resources(plan.site.config)


def asks(job):
    """Resources of a rule's jobs, of which `job` gives the one of some wildcards."""
    if not IS_ASKED:
        return {}

    def asked(what):
        return lambda wildcards, attempt: what(known().ask(job(wildcards), attempt))

    found = {
        "mem_mb": asked(lambda ask: ask.memory_mb),
        "runtime": asked(lambda ask: ask.minutes),
        "expected": asked(lambda ask: ask.seconds),
    }
    if plan.site.config.scale.resources.device is not None:
        # What is None is not asked for.
        model = plan.resources.gpu_model
        found["gpu"] = asked(lambda ask: ask.gpus or None)
        found["gpu_model"] = asked(lambda ask: model if ask.gpus else None)
    return found


def planned(make):
    """A job whose configuration is checked when it is asked for: figures do without it."""
    try:
        return make()
    except Problem as problem:
        raise WorkflowError(str(problem)) from None


def runs_again(job):
    """Whether a job of Snakemake runs even where its result is current."""
    own = handover.job(job.params.get("job"))
    is_forced = job.rule in forced() or not forced().isdisjoint(job.output)
    return is_forced or own is not None and due().is_damaged(own)


def prepare():
    """Get ready for the jobs that are about to run."""
    # Snakemake's scheduler has set handlers of its own meanwhile.
    if workflow.is_main_process:
        signals.leave_at_once(
            "interrupted before jobs began; run the same command again"
        )
    jobs = list(workflow.dag.needrun_jobs())
    told = {job.jobid: told_of(job) for job in jobs if not job.is_norun}
    try:
        journal = builds.claim(
            builds.FOLDER,
            chain.from_iterable(job.output for job in jobs),
            chain.from_iterable(job.input for job in jobs),
            {each.manifest: each.label for each in told.values()},
            local=workflow.local_exec,
        )
        if harm := due().note():
            logger.warning(harm)
        handover.write({job.params.get("job"): runs_again(job) for job in jobs})
    except (Problem, OSError) as problem:
        full = "the disk is full; free some space and run the same command again"
        raise WorkflowError(full if is_full_disk(problem) else str(problem)) from None
    # Of no use to jobs that a scheduler runs, which have devices of their own.
    os.environ[devices.ALLOCATION] = devices.allocation()
    os.environ[devices.SHARED] = str(plan.site.config.scale.jobs_per_device)
    say = telling.Telling(told, journal, local=workflow.local_exec)
    tellings.append(say)
    quiet = workflow.output_settings.quiet or ()
    telling.attach(say, replacing=Quietness.RULES in quiet)
    # Else jobs that finish are not logged where less is to be said.
    workflow.scheduler.print_progress = True
    repository.refresh()
    if plan.site.config.scale.warm and workflow.local_exec and not USES_CONDA:
        # It takes as long to get ready as a few jobs to import what they need.
        if len(jobs) > 2 * CORES:
            own = filter(None, (handover.job(job.params.get("job")) for job in jobs))
            uses = Counter(chain.from_iterable(job.libraries for job in own))
            start_warm([library for library, count in uses.items() if count > 1])
        # To keep within 100 new jobs a second, Snakemake 9.27 looks for jobs to start once a second
        # for every job that it has started so far: after 600 jobs, that is most of a core.
        workflow.scheduler.job_rate_limiter = None
    # Until here, where nothing runs, a signal ends all at once.
    builds.pass_signals_on()


def told_of(job):
    """How a job of Snakemake is named to who reads of it."""
    own = handover.job(job.params.get("job"))
    if own is not None:
        return telling.Told(f"{own.stage} {own.name}", own.paths)
    values = " ".join(map(str, job.wildcards))
    return telling.Told(f"{job.rule.name} {values}".strip(), None)


def sum_up(is_well):
    """Say how the build has ended, if it has begun."""
    for say in tellings:
        failed = [] if is_well else workflow.scheduler.failed
        say.sum_up((job.jobid for job in failed), is_well=is_well)


onstart:
    prepare()


onsuccess:
    sum_up(True)


onerror:
    sum_up(False)


if IS_MODULE:
    # Snakemake calls the hooks of the importing workflow alone, which may stand before or after the
    # import.
    def add_hook(name, own):
        register, earlier = getattr(workflow, name), getattr(workflow, f"_{name}")
        setattr(
            workflow, name, lambda theirs: register(lambda log: (theirs(log), own()))
        )
        setattr(workflow, f"_{name}", lambda log: (earlier(log), own()))

    add_hook("onstart", prepare)
    add_hook("onsuccess", lambda: sum_up(True))
    add_hook("onerror", lambda: sum_up(False))


def any_of(*names):
    """A wildcard that is one of these names; where there are none, nothing fits."""
    return "|".join(map(re.escape, chain(*names))) or "(?!)"


def shown_figure(suffix, form):
    """A file of a figure, and how Snakemake's own report shows it."""
    return report(
        update(f"{plan.site.pictures}/{{figure}}.{suffix}"),
        caption="../report/figure.rst",
        category=lambda w: group(plan, w.figure),
        labels=lambda w: {
            "figure": w.figure,
            "title": title(plan, w.figure),
            "form": form,
        },
    )
