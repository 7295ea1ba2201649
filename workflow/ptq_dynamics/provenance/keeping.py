"""What the repository keeps of a scale for those who read it: its pictures and the tables of what
they draw, measurements, claims, tables, the paper and the archive of all raw results, with their
records."""

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import record, repository
from ptq_dynamics.engine.current import Results
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.engine.verified import Verifier
from ptq_dynamics.graph import Plan
from ptq_dynamics.graph.captions import write_page
from ptq_dynamics.graph.due import Due
from ptq_dynamics.paper.settings import PAPER
from ptq_dynamics.provenance import costs, sums
from ptq_dynamics.provenance.releasing import Released, release
from ptq_dynamics.provenance.sums import Places

# Of a picture, the one that a page shows.
LEFT_OUT = ".pdf"


def keep(plan: Plan) -> Released:
    """Write all of a scale that the repository keeps; what was there of an earlier release goes.

    Raises `Problem` where a result is not fresh, was made by code that is in no commit, or where
    the working tree has edits.
    """
    places = Places.of(plan.site.config.choice.scale)
    paper = plan.typeset(Path("config"))
    jobs = [*plan.figures.targets(), plan.claims.judge(), plan.tables.write()]
    fresh, due = Due(plan.site, Results(Verifier(deep=True))).find([*jobs, paper, *plan.last()])
    if due:
        raise Problem(
            f"{len(due)} results are not fresh, {due[0].manifest} for one; make all makes them"
        )
    _require_commits(fresh)
    for folder in (places.results, places.pictures):
        if folder.is_dir():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
    for path, target in (*_kept(jobs, places, plan), *_paper(paper, places)):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    write_page(plan.site.config.figures, places.pictures)
    costs.write(plan.site.config.choice.scale, places.results)
    released = release(plan, places.results)
    sums.write(places)
    if (sweeps := Places.of(sums.SWEEPS)).files():
        sums.write(sweeps)
    return released


def _require_commits(jobs: Iterable[Job]) -> None:
    """What is kept can be made again from commits alone."""
    now = repository.state()
    if now is None or now.dirty:
        raise Problem("the working tree is no clean commit; commit its edits, then release")
    for job in jobs:
        found = record.read(job.paths.record).git
        if found is None or found.dirty:
            raise Problem(
                f"{job.manifest} was made by code that is in no commit; delete "
                f"{job.paths.record} and make it again"
            )


def _paper(job: Job, places: Places) -> Iterator[tuple[Path, Path]]:
    """The paper and its record."""
    yield Path(job.folder, PAPER), places.results / PAPER
    record = job.paths.record
    yield record, places.results / f"{Path(PAPER).stem}.{record.name}"


def _kept(jobs: Iterable[Job], places: Places, plan: Plan) -> Iterator[tuple[Path, Path]]:
    """Files, and where copies of them are kept."""
    results = Path(plan.site.results)
    for job in jobs:
        for path in (*map(Path, job.outputs), job.paths.record):
            if path.suffix == LEFT_OUT:
                continue
            if results in path.parents:
                yield path, places.results / path.relative_to(results)
            else:
                yield path, places.pictures / path.name
