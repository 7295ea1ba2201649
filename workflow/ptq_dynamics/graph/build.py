"""What surrounds a build: checks before it is planned, the warm process, and what it leaves."""

import os
import sys
import threading
from collections import Counter
from itertools import chain
from pathlib import Path

from ptq_dynamics.engine import checkout, devices, machine, signals
from ptq_dynamics.engine.warm.launch import start as start_warm
from ptq_dynamics.graph import Plan, keeping
from ptq_dynamics.graph.captions import write_page

# Jobs for which it is worth while to import the large libraries ahead.
MANY = 4


def prepare(sources: Path, *, is_main: bool) -> None:
    """Verify that jobs will run this code, and let signals end planning in one line."""
    checkout.check(sources)
    os.environ.update(checkout.environment())
    if is_main:
        signals.leave_at_once("interrupted while planning; run the same command again")


def begin(plan: Plan, *, local: bool) -> None:
    """Get ready for the jobs that are about to run."""
    signals.hand_over()
    if local:
        os.environ[devices.SHARED] = str(plan.site.config.scale.jobs_per_device)
    machine.refresh()
    stale = plan.site.stale.values()
    if local and plan.site.config.scale.warm and len(stale) >= MANY:
        uses = Counter(chain.from_iterable(job.code.libraries for job in stale))
        start_warm([library for library, count in uses.items() if count > 1])


def finish(plan: Plan) -> None:
    """Write the page of captions beside the figures, and drop what the scale does not keep."""
    # Snakemake's waits for the next evaluation would keep the ended build for up to a minute.
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.cancel()
    pictures = Path(plan.site.pictures)
    if pictures.is_dir():
        write_page(plan.site.config.figures, pictures)
    if dropped := keeping.drop(plan.site, plan.last()):
        print(f"dropped weights of {len(dropped)} results (keep of the scale)", file=sys.stderr)
