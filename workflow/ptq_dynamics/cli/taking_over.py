"""`ptq-dynamics release`, `adopt` and `accept`: results that are given and taken as they are."""

import sys
from collections.abc import Mapping
from pathlib import Path

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.cli.chosen import load
from ptq_dynamics.engine import codes
from ptq_dynamics.engine.current import Results
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.engine.verified import Verifier
from ptq_dynamics.graph import Plan
from ptq_dynamics.graph.due import Due
from ptq_dynamics.provenance.accepting import accept
from ptq_dynamics.provenance.adopting import adopt, further_seeds, unpacked
from ptq_dynamics.provenance.archive import DERIVED
from ptq_dynamics.provenance.keeping import keep
from ptq_dynamics.provenance.packed import RELEASE
from ptq_dynamics.provenance.releasing import release
from ptq_dynamics.provenance.sums import Places


def give(plan: Plan, folder: Path | None) -> bool:
    """Write what is measured at a scale into a folder, or all that the repository keeps of it into
    its place there."""
    found = keep(plan) if folder is None else release(plan, folder)
    place = folder or Places.of(plan.site.config.choice.scale).results
    print(f"{place / RELEASE}: {found.results} results, {found.size / 1e6:.1f} MB")
    return True


def take(choice: Mapping[str, str | None], place: str, digest: str | None) -> bool:
    """Take over what is current in a folder or an archive, of all seeds that are there unless some
    are chosen; whether that is all that is needed."""
    plan = Plan(load(choice))
    with unpacked(place, digest) as folder:
        found = adopt(plan, folder)
        more = [] if choice.get("more_seeds") else further_seeds(plan, folder)
        others = _of_seeds(more, plan, choice, folder) if more else ""
    for each in found.left:
        print(f"{each.state:7}  {each.job}  {each.why}")
    there = {*found.taken, *found.had}
    rest = [job for job in plan.site.needed(plan.last()) if job.manifest not in there]
    drawn = sum(1 for job in rest if job.stage.startswith(DERIVED))
    lacking = len(rest) - drawn
    print(
        f"{len(found.taken)} results were taken over, {len(found.had)} were here already, "
        f"{lacking} are not there as they would be made here"
        + _next(f"make figures SCALE={plan.site.config.choice.scale}", lacking, drawn)
    )
    if others:
        print(others)
    return not lacking


def _next(command: str, lacking: int, drawn: int) -> str:
    """What there is to do next."""
    if lacking:
        return f"; {command} makes those, and then what is drawn from them"
    return f"; {command} draws {drawn} figures and tables from them" if drawn else ""


def _of_seeds(more: list[int], plan: Plan, choice: Mapping[str, str | None], folder: Path) -> str:
    """Take over what is measured of further seeds, and say how many results that are."""
    known = plan.site.config.choice.more_seeds
    wider = Plan(load({**choice, "more_seeds": " ".join(map(str, sorted({*known, *more})))}))
    own = {job.manifest for job in plan.site.needed(plan.last())}
    found = adopt(wider, folder, besides=own)
    seeds = " ".join(map(str, more))
    left = f", {len(found.left)} are not as they would be made here" if found.left else ""
    return (
        f"of seeds {seeds}, {len(found.taken)} more were taken over{left}; "
        f'make figures SCALE={plan.site.config.choice.scale} SEEDS="{seeds}" draws them too'
    )


def declare(plan: Plan, result: Path, reason: str) -> bool:
    """Accept the result with a manifest, or all stale ones in or below a folder."""
    if not reason.strip():
        raise Problem("--reason is empty; say why the change makes no difference")
    due = Due(plan.site, Results(Verifier()))
    meant = [job for job in plan.site.needed(plan.last()) if _is_meant(job, result.resolve())]
    if not meant:
        raise Problem(f"{result} is no manifest of a result of this scale, nor a folder of any")
    # Of a folder, those that are there.
    jobs = [job for job in meant if job.paths.record.exists() or len(meant) == 1]
    table = codes.known(codes.table_of(plan.site.results))
    told = accept([job for job in jobs if due.is_due(job)], reason, table)
    # By the records as they are now.
    after = Due(plan.site, Results(Verifier()))
    after.find(plan.last())
    if harm := after.note():
        print(f"warning: {harm}", file=sys.stderr)
    print(*told, sep="\n", end="\n" if told else "")
    print(f"{len(told)} results were accepted: {reason}")
    return True


def _is_meant(job: Job, result: Path) -> bool:
    manifest = job.paths.manifest.resolve()
    return result == manifest or result in manifest.parents
