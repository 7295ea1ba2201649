"""Run one job: `python -m ptq_dynamics.engine.run --job FILE`.

FILE is the job's specification, or holds it, as the record of a result does. The job runs in the
process that has the big libraries ready where there is one, else in this one. Hundreds of jobs
start here, so what only the job itself needs is imported when it runs.
"""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import signals
from ptq_dynamics.engine.quiet import QUIET
from ptq_dynamics.engine.variables import DEVICE_MAP, GPUS


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job given on the command line; exit status 0 when its result is published."""
    parser = argparse.ArgumentParser(prog="python -m ptq_dynamics.engine.run", description=__doc__)
    parser.add_argument("--job", required=True, type=Path, help="a specification or a record")
    parser.add_argument("--if-stale", action="store_true", help="unless its result is current")
    parser.add_argument("--counted", action="store_true", help="leave it to others to say its end")
    parser.add_argument("--devices", type=int, default=0, help="GPUs to compute on, if any")
    parser.add_argument("--restore", action="store_true", help="only make dropped files again")
    parser.add_argument(
        "--compare", action="store_true", help="make the result again, and only compare it"
    )
    parser.add_argument("--gpus", help="at most so many of those visible train together")
    parser.add_argument("--device-map", help="how to spread a model that fits on no device")
    chosen = parser.parse_args(arguments)
    file: Path = chosen.job
    # Here, where a signal is answered already (`signals.leave_at_once`).
    from ptq_dynamics.engine.warm.client import delegate

    try:
        job, again = _specification(file)
    except (OSError, ValueError, KeyError, AttributeError, Problem) as error:
        sys.stderr.write(f"error: {file} is no job: {_explain(error)}\n")
        return 1
    os.environ.update(QUIET)
    told = {GPUS: chosen.gpus, DEVICE_MAP: chosen.device_map}
    for name, value in told.items():
        # Who runs the job has the last word.
        if value is not None:
            os.environ.setdefault(name, value)
    label = f"{job['stage']} {job['name']}"
    how: dict[str, Any] = {
        "restoring": chosen.restore,
        "if_stale": chosen.if_stale and not again,
        "counted": chosen.counted,
        "devices": chosen.devices,
    }
    try:
        # The warm process's child has its time first.
        with signals.ending(label, 2 * signals.GRACE):
            status = None
            if not chosen.compare:
                status = delegate(job, **how)
        if status is not None:
            return status
        with signals.ending(label):
            from ptq_dynamics.engine.execute import execute

            return execute(job, comparing=chosen.compare, **how)
    except KeyboardInterrupt:
        signals.complain(label)
        return 1


def _specification(file: Path) -> tuple[Mapping[str, Any], bool]:
    """The job in a file, and whether that says to run it even where its result is current."""
    content = json.loads(file.read_text(encoding="utf-8"))
    if "version" in content:
        from ptq_dynamics.engine import record

        return record.read(file).job, False
    job = content.get("job", content)
    if "stage" not in job:
        raise KeyError("stage")
    return job, content.get("again", False)


def _explain(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "it is missing; Snakemake writes it when it starts a build, so run snakemake again"
    return f"it is neither a specification nor a record ({error})"


if __name__ == "__main__":
    signals.leave_at_once(f"error: a job that was about to begin: {signals.INTERRUPTED}")
    sys.exit(main())
