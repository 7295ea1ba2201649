"""Verify every byte, record and input in the folders of a scale."""

import os
import random
from collections import Counter
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console
from rich.progress import track

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.execute import again
from ptq_dynamics.engine.paths import ABSENT, PARTS, beside, files
from ptq_dynamics.plan import FROM_NETWORK
from ptq_dynamics.provenance.archive import Archive, Result

# Jobs that cannot run again: they download, or they show records, which may have changed.
ONCE = ("report.page", *FROM_NETWORK)


@dataclass
class Audit:
    """Counts of results and files, and lines for the user. `effects` lists changed inputs."""

    results: int
    files: int = 0
    absent: int = 0
    wrong: list[str] = field(default_factory=list)
    effects: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def audit(archive: Archive, others: Collection[Path] = ()) -> Audit:
    """Hash every file, and follow every input to its record. Jobs do not make `others`."""
    results, listed = [result for result in archive.in_order() if result.in_place], {*others}
    outcome = Audit(len(results), wrong=[*archive.damaged])
    for result in track(results, "hashing", console=Console(stderr=True)):
        _verify(result, archive, listed, outcome)
    notes = Counter(note for result in results for note in result.record.notes)
    outcome.notes += [f"{count} results: {note}" for note, count in notes.items()]
    if lost := [result for result in results if result.record.git is None]:
        outcome.notes += [f"{len(lost)} results name no commit, such as {lost[0].path}"]
    # Without all records, the owner of a file may be unknown.
    if not archive.damaged:
        every = (file for folder in archive.folders for file in files(folder))
        strays = [file for file in every if file not in listed]
        outcome.wrong += [f"{file} belongs to no result; remove it" for file in strays]
    return outcome


def _verify(result: Result, archive: Archive, listed: set[Path], outcome: Audit) -> None:
    made = result.record.manifest(Path(result.path))
    listed |= {beside(made.path, name) for name in PARTS}
    listed |= {made.folder / name for name in made.files}
    # A missing manifest can be written again from the record.
    if made.path.exists() and made.path.read_bytes() != made.text().encode():
        outcome.wrong.append(f"{made.path} differs from the manifest in its record")
    dropped, note = made.dropped(), beside(made.path, ABSENT)
    if note.exists() and note.read_bytes() != made.note(dropped).encode():
        outcome.wrong.append(f"{note} was edited, or belongs to another result")
    absent = {name for name in dropped if not (made.folder / name).exists()}
    outcome.absent += len(absent)
    outcome.files += len(made.files) - len(absent)
    for name in made.files.keys() - absent:
        harm = replace(made, files={name: made.files[name]}).harm(deep=True)
        # A build may drop weights meanwhile.
        if harm and ((made.folder / name).exists() or name not in made.dropped()):
            outcome.wrong.append(harm)
    for path, digest in result.record.inputs.items():
        maker = archive.results.get(path)
        if maker is None:
            outcome.effects.append(f"{result.path} was made from {path}, which has no record")
        elif maker.digest != digest:
            outcome.effects.append(f"{result.path} was made from another version of {path}")


def require_unchanged(archive: Archive, scale: str) -> None:
    """Raise `Problem` if a build changed results of a scale after their records were read."""
    both = (archive, Archive.of_scale(scale))
    before, now = ({result.path: result.record for result in one.every} for one in both)
    if before != now:
        raise Problem("a build changed results during the audit; run it again after the build")


def sample(archive: Archive, count: int, seed: int) -> list[Result]:
    """Draw results at random, except results whose jobs cannot run again."""
    able = [result for result in archive.in_order() if result.stage not in ONCE]
    return random.Random(seed).sample(able, min(count, len(able)))


def rerun(results: Collection[Result]) -> Iterator[str]:
    """Run the jobs of records again; yield a line for each result whose bytes differ."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        same = pool.map(lambda result: again(result.place, "compare"), results)
        shown = track(results, "rebuilding", console=Console(stderr=True))
        for result, is_same in zip(shown, same, strict=True):
            if not is_same:
                yield f"{result.place}: its job made other bytes; see the lines above"
