"""`ptq-dynamics audit`: everything that lies in a scale's folders, checked."""

import os
import random
from dataclasses import dataclass
from pathlib import Path

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config import scales
from ptq_dynamics.engine import repository
from ptq_dynamics.graph import FROM_NETWORK, Plan
from ptq_dynamics.graph.captions import PAGE, page
from ptq_dynamics.provenance import costs, sums
from ptq_dynamics.provenance.archive import DERIVED, Archive, Result
from ptq_dynamics.provenance.audit import audit, strangers
from ptq_dynamics.provenance.remaking import remade
from ptq_dynamics.provenance.signing import sign, statement, verify
from ptq_dynamics.provenance.sums import Places
from ptq_dynamics.report.settings import OTHER

SIGNATURE = "release.sig"
# Jobs that are not made again: they delete, download, or tell of records, which may be newer.
ONCE = ("train.drop", "report.page", *FROM_NETWORK)
TOLD = 20  # notes


@dataclass(frozen=True)
class Asked:
    """What an audit is asked for beside its checks: so many jobs of a seed's choice to run again,
    and to sign with a key or verify by the allowed signers and the name of one."""

    rerun: int = 0
    seed: int | None = None
    key: Path | None = None
    signers: Path | None = None
    signer: str | None = None


def show(plan: Plan, asked: Asked) -> bool:
    """Print what is wrong, a line each, and the root of the release; whether all is well."""
    if (asked.signers is None) != (asked.signer is None):
        raise Problem("--signers and --signer go together: the file, and who has to have signed")
    if asked.rerun < 0:
        raise Problem(f"--rerun is {asked.rerun}; give how many jobs to run again")
    scale = plan.site.config.choice.scale
    archive = Archive.of_scale(scale)
    kept, sweeps = Places.of(scale), Places.of(sums.SWEEPS)
    if not archive.records:
        why = f"nothing is built at scale {scale}; make figures SCALE={scale} builds it"
        if not kept.sums.is_file() or asked != Asked():
            raise Problem(why)
        print(why)
        return _told([*_released(kept), *_released(sweeps), *strangers(scales())], asked)
    pictures = Path(plan.site.pictures)
    text = page(plan.site.config.figures, pictures)
    pages = {pictures / PAGE: text} if pictures.is_dir() else {}
    signature = Path(plan.site.results) / SIGNATURE
    own = Path(plan.site.results) / OTHER
    found = audit(archive, pages, [signature, own, *costs.files(Path(plan.site.results))])
    absent = f"; {found.absent:,} files are known and not here" if found.absent else ""
    print(f"{found.results:,} results with {found.files:,} files were hashed{absent}")
    derived = [r for r in archive.results.values() if r.record.job["stage"].startswith(DERIVED)]
    wrong = [*found.wrong, *strangers(scales()), *_released(kept), *_released(sweeps)]
    wrong += _again(derived, ("table or figure was derived", "tables and figures were derived"))
    if asked.rerun:
        jobs = ("job of a random sample was run", "jobs of a random sample were run")
        wrong += _again(_sample(archive, asked), jobs)
    commit = repository.state()
    if commit is None or commit.dirty:
        found.notes.insert(0, "the code here differs from its commit, or has none")
    for note in found.notes[:TOLD]:
        print(f"note: {note}")
    if len(found.notes) > TOLD:
        print(f"note: and {len(found.notes) - TOLD} more")
    if not _told(wrong, asked, found.root):
        return False
    if asked.key is not None:
        sign(statement(scale, found.root), asked.key, signature)
        print(f"signed: {signature}")
    if asked.signers is not None:
        verify(statement(scale, found.root), signature, asked.signers, asked.signer or "")
        print(f"the signature is good: {signature}")
    print("all is well")
    return True


def _told(wrong: list[str], asked: Asked, root: str = "") -> bool:
    """Print what is wrong, and the root of the release; whether nothing is."""
    for line in wrong:
        print(f"wrong: {line}")
    if root:
        print(f"root: {root}")
    if wrong:
        unsigned = "; nothing was signed or verified" if asked.key or asked.signers else ""
        print(f"{len(wrong)} {'thing is' if len(wrong) == 1 else 'things are'} wrong{unsigned}")
    return not wrong


def _released(places: Places) -> list[str]:
    """What is wrong with what is released of the scale, which is told if it is there."""
    if places.sums.is_file():
        lines = list(sums.wrong(places))
        print(f"{len(places.files()):,} released files were compared with {places.sums}")
        return lines
    if places.files():
        print(f"note: {places.sums} is missing, so bytes of what is released were not checked")
    return []


def _again(results: list[Result], what: tuple[str, str]) -> list[str]:
    """Make results again, which one or several are called; a line for each that differs."""
    lines = list(remade(results, at_once=os.cpu_count() or 1))
    same = len(results) - len(lines)
    came = "it is" if same == 1 else "they are"
    print(f"{len(results)} {what[len(results) != 1]} again; {same} came out as {came}")
    return lines


def _sample(archive: Archive, asked: Asked) -> list[Result]:
    seed = random.SystemRandom().randrange(10**6) if asked.seed is None else asked.seed
    able = [r for r in archive.in_order() if r.record.job["stage"] not in ONCE]
    print(f"the sample has seed {seed}")
    return random.Random(seed).sample(able, min(asked.rerun, len(able)))
