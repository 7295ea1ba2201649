"""What a build cost, by the records of its results.

It is no result of a job: a job that runs again takes another time, and its result may be the same.
"""

from collections.abc import Iterable

import pandas as pd

from ptq_dynamics.claims.formats import Table
from ptq_dynamics.engine.record import Record
from ptq_dynamics.paper.records import gpus, kind

TITLE = "Cost by kind of job, as records have it"
HEADS = ["Kind", "Jobs", "Tokens trained", "Wall hours", "Core hours", "GPU hours"]


def table(records: Iterable[Record]) -> Table:
    """A row for every kind of job, named by its stage, the most processor time first; and all."""
    seconds = [
        (kind(r), 1, r.tokens or 0, r.seconds, r.cpu_seconds, gpus(r) * r.seconds) for r in records
    ]
    found = pd.DataFrame(seconds, columns=HEADS).groupby("Kind").sum()
    found = found.sort_values("Core hours", ascending=False, kind="stable")
    found.loc["all"] = found.sum()
    rows = [
        [kind, int(jobs), int(tokens), *(f"{each / 3600:.4f}" for each in used)]
        for kind, jobs, tokens, *used in found.itertuples()
    ]
    return Table(TITLE, HEADS, rows)
