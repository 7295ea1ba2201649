"""Run one job: `python -m ptq_dynamics.jobs.run --job JSON`.

In the process that has the big libraries ready where there is one, else in this one. Hundreds of
jobs start here, so what only the job itself needs is imported when it runs.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence

from ptq_dynamics.jobs.quiet import QUIET
from ptq_dynamics.jobs.warm.client import delegate


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job given on the command line; exit status 0 when its result is published."""
    parser = argparse.ArgumentParser(prog="python -m ptq_dynamics.jobs.run", description=__doc__)
    parser.add_argument("--job", required=True, type=json.loads, help="the job specification, JSON")
    job = parser.parse_args(arguments).job
    os.environ.update(QUIET)
    status = delegate(job)
    if status is not None:
        return status
    from ptq_dynamics.jobs.execute import execute

    return execute(job)


if __name__ == "__main__":
    sys.exit(main())
