"""The steps of a build around its jobs: checks, the warm process, dropped weights."""

import os
import shutil
import signal
import sys
import threading
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config.errors import require
from ptq_dynamics.engine import checkout, lease, machine, manifest, run, warm
from ptq_dynamics.engine.job import Job, stale
from ptq_dynamics.figures.captions import write_page
from ptq_dynamics.plan import Plan
from ptq_dynamics.plan.site import Site

MANY = 4  # outdated results from which on the warm process saves time
# Stages whose jobs read no weights.
LIGHT = ("figures", "measure.measurements", "claims", "paper", "report")
LEAST = 50 * 10**6  # bytes; a full disk truncates compiled code, which Python does not repair


def prepare(sources: Path, *, is_main: bool) -> None:
    """Verify that jobs will run this code, and let signals end planning at once."""
    checkout.require_own(sources)
    os.environ.update(checkout.environment())
    if is_main:
        run.end_at_once()
        if shutil.disk_usage(Path()).free < LEAST:
            raise Problem("less than 50 MB are left on the disk of this folder; free some space")
        # Snakemake ignores a profile that does not exist.
        places = (Path(), Path("profiles"), sources / "profiles")
        parser = ArgumentParser(add_help=False)
        parser.add_argument("--workflow-profile", default="none")
        name = parser.parse_known_args()[0].workflow_profile
        if name != "none" and not any((place / name).exists() for place in places):
            known = [f"profiles/{path.name}" for path in places[-1].iterdir()]
            require("--workflow-profile", "profile", [name], known)


def begin(plan: Plan, *, local: bool) -> None:
    """Prepare this process for running jobs; print the note of the scale."""
    scale = plan.site.config.scale
    if scale.note:
        # In one piece, since a thread of Snakemake logs meanwhile.
        sys.stderr.write(f"{scale.description}: {scale.note}\n")
    # Snakemake handles Ctrl-C while jobs run.
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        machine.read_commit()
    except Problem as problem:
        print(f"note: records of this build name no commit ({problem})", file=sys.stderr)
    if local:
        os.environ[lease.SHARED] = str(plan.site.config.scale.jobs_per_device)
    # `ptq-dynamics measure` starts one for several builds.
    is_cold = run.VARIABLE not in os.environ
    if local and is_cold and scale.warm and len(plan.stale) >= MANY:
        warm.start()


def finish(plan: Plan) -> None:
    """Write the page of captions, and drop weights that the scale does not keep."""
    # Timers of Snakemake would delay the exit by up to a minute.
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.cancel()
    write_page(plan.site.config.figures, Path(plan.site.pictures))
    if dropped := drop(plan.site, plan.targets()):
        print(f"dropped weights of {len(dropped)} results (keep of the scale)", file=sys.stderr)


def require_planned(plan: Plan) -> None:
    """Raise `Problem` if another build, or a dry run, has planned a job otherwise meanwhile."""
    mend = "meanwhile; run the same command again when no other build runs"
    for job in map(plan.site.made.__getitem__, plan.settled):
        if not job.paths.spec.exists():
            raise Problem(f"{job.folder} was deleted {mend}")
        if job.paths.spec.read_text(encoding="utf-8") != job.text:
            other = "another build or a dry run of this folder has planned"
            raise Problem(f"{other} {job.manifest} otherwise {mend}")


def drop(site: Site, targets: Iterable[Job]) -> list[str]:
    """Drop weights that the scale does not `keep` and that no job for the targets needs; return
    the folders of the results. Manifest and record stay, so a later job can rebuild the weights."""
    keep, dropped = site.config.scale.keep, list[str]()
    readers = defaultdict[str, list[Job]](list)
    for job in site.needed(targets):
        for path in () if job.stage.startswith(LIGHT) else dict.fromkeys(job.needs):
            if getattr(keep, site.made[path].rule, "all") != "all":
                readers[path].append(job)
    for path, jobs in readers.items():
        job = site.made[path]
        # An outdated reader still needs the weights.
        if job.paths.manifest.exists() and not any(
            stale(reader.spec, reader.paths) for reader in jobs
        ):
            kept = set[str]()
            if getattr(keep, job.rule) == "measured":
                name = job.wildcards["run" if job.rule == "train" else job.rule]
                kept = {point.id for point in site.planned[name].measured}
            result = manifest.read(job.paths.manifest)
            weights = [file for file in result.files if file.endswith(".safetensors")]
            names = {file for file in weights if file.split("/")[0] not in kept} - result.dropped()
            if not names:
                continue
            with lease.held(job.paths.lease, print):
                # Another build may have published it again.
                if manifest.read(job.paths.manifest).digest() == result.digest():
                    result.drop(names)
                    dropped.append(job.folder)
    return dropped
