"""`ptq-dynamics paper`: the paper, with the claims and tables that it cites, over the figures.

The jobs are those of the workflow. They are few and short, so that they run here one after the
other: Snakemake, which runs them as well, takes longer to start than they take.
"""

import json
import sys
from pathlib import Path

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.current import Results
from ptq_dynamics.engine.execute import execute
from ptq_dynamics.engine.verified import Verifier
from ptq_dynamics.graph import Plan
from ptq_dynamics.graph.due import Due
from ptq_dynamics.paper.settings import PAPER


def make(plan: Plan) -> bool:
    """Make what is due, each after what it needs; whether all came out well.

    Raises `Problem` where a figure, or what claims read, is due.
    """
    paper = plan.typeset(Path("config"))
    own = [plan.figures.collect(), plan.claims.judge(), plan.tables.write(), paper]
    due = Due(plan.site, Results(Verifier()))
    _, stale = due.find([paper])
    if others := [job for job in stale if job not in own]:
        scale = plan.site.config.choice.scale
        drawn = [each for each in others if each.name in plan.site.config.figures]
        first = (drawn or others)[0]
        raise Problem(
            f"{len(others)} results are not fresh, {first.manifest} for one; "
            f"make figures SCALE={scale} makes them"
        )
    if harm := due.note():
        print(f"warning: {harm}", file=sys.stderr)
    # What did not come out is told by the job.
    if not all(execute(json.loads(job.spec()), if_stale=True) == 0 for job in own if job in stale):
        return False
    print(f"{paper.folder}/{PAPER} is {'made' if paper in stale else 'as it should be'}")
    return True
