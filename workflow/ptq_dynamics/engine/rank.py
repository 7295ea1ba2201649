"""One process of a job: `python -m ptq_dynamics.engine.rank REQUEST`, started by `ranks`."""

import importlib
import os
import pickle
import sys
import traceback
from dataclasses import replace
from pathlib import Path

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import fingerprint, machine, signals
from ptq_dynamics.engine.checkout import PACKAGE
from ptq_dynamics.engine.ranks import Answer, Failure, Left, Request


def main(path: Path) -> None:
    """Do what the request says, and answer it."""
    request: Request = pickle.loads(path.read_bytes())
    # As many as the job has, in equal parts; libraries read this when they are loaded.
    threads = int(os.environ.get("OMP_NUM_THREADS", 0)) or os.cpu_count() or 1
    os.environ["OMP_NUM_THREADS"] = str(max(1, threads // request.seat.team.count))
    answer: Answer | Left | Failure
    try:
        answer = _work(request)
    except signals.CalledBack:
        answer = Left()
    except Problem as problem:
        answer = Failure(str(problem))
    except Exception as error:
        answer = Failure(f"{type(error).__name__}: {error}", traceback.format_exc())
    partial = request.answer.with_suffix(".partial")
    partial.write_bytes(pickle.dumps(answer))
    partial.replace(request.answer)


def _work(request: Request) -> Answer:
    context = request.context
    # As the job's own process does.
    fingerprint.check(request.job)
    fingerprint.load(request.job)
    fingerprint.check(request.job)
    if request.seat.leads:
        if request.log is not None:
            context.progress.log = request.log.open("a", encoding="utf-8")
    else:
        trusted = {
            label: [each.trusted() for each in group] for label, group in context.inputs.items()
        }
        context = replace(context, inputs=trusted)
    facts = importlib.import_module(f"{PACKAGE}.{request.module}").run(context, request.seat)
    return Answer(facts, machine.device())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
