"""Checks all that lies in the folders of a scale: bytes, records, and how they hang together."""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ptq_dynamics.base.content import parsed, sha256
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import codes, manifest
from ptq_dynamics.engine.paths import ABSENT, MANIFEST, RECORD, beside, is_passing
from ptq_dynamics.provenance.archive import REFERENCE, Archive, Result
from ptq_dynamics.provenance.releasing import RELEASED
from ptq_dynamics.provenance.sums import SWEEPS, found_in

# Beside scales: builds of candidates for settings, and of what is released, tables of these.
SWEEP = "sweep"


@dataclass
class Audit:
    """How many results and files were looked at, how many files are known and were dropped or not
    released, what is wrong (one line each), what a reader should know, and the root."""

    results: int = 0
    files: int = 0
    absent: int = 0
    wrong: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    root: str = ""


def audit(archive: Archive, pages: Mapping[Path, str], beside: Collection[Path]) -> Audit:
    """Hash every file again, and follow every input to the record that it is the output of.

    `pages` are files that no job makes, with the text that they have to have; what lies `beside`
    is of no job either, and is not looked at.
    """
    found = Audit()
    results = archive.results
    found.wrong += archive.read[1]
    found.wrong += [
        f"{each.place} is the record of {each.path}, which lies elsewhere"
        for each in archive.read[0]
        if not each.in_place
    ]
    listed = {*archive.records, *pages}
    leaves = dict[str, str]()
    readable = {each.place for each in archive.read[0]}
    for account in archive.records:
        if account not in readable:
            listed |= _beside(account, RECORD)
    for path, result in sorted(results.items()):
        found.results += 1
        found.wrong += _of_result(Path(path), results, listed, leaves, found)
        for read, digest in result.record.inputs.items():
            maker = results.get(read)
            if maker is None:
                found.wrong.append(f"{path} was made from {read}, of which there is no record")
            elif maker.digest != digest:
                found.wrong.append(f"{path} was made from another {read} than the one there")
        for each in result.record.accepted:
            found.notes.append(f"{path} was accepted, not made again: {each.reason}")
        if result.record.git is None:
            found.notes.append(f"{path} was made by code of no commit")
        elif result.record.git.dirty:
            found.notes.append(f"{path} was made by code that differs from its commit")
    found.wrong += _of_code(results.values(), listed)
    if circle := archive.cycle():
        found.wrong.append(f"results are made from themselves: {' from '.join(circle)}")
    for page, text in pages.items():
        if not page.is_file():
            found.wrong.append(f"{page} is missing; make figures writes it")
        elif page.read_bytes() != text.encode():
            found.wrong.append(f"{page} is not what the configuration says; make figures renews it")
    for folder in archive.folders:
        for file in found_in(folder):
            if file not in listed and file not in beside:
                found.wrong.append(f"{file} belongs to no result; remove it")
    leaves |= {str(each.place): sha256(each.place) for each in archive.read[0]}
    found.root = root(leaves)
    return found


def _of_result(
    path: Path,
    results: Mapping[str, Result],
    listed: set[Path],
    leaves: dict[str, str],
    found: Audit,
) -> Iterator[str]:
    """What is wrong with the files of one result."""
    digest = results[str(path)].digest
    listed.add(path)
    try:
        result = manifest.read(path)
        dropped = result.dropped()
    except Problem as problem:
        yield str(problem)
        listed |= _beside(path, MANIFEST)
        return
    actual = sha256(path)
    leaves[str(path)] = actual
    if actual != digest:
        yield f"{path} is not the one that its record names"
    absent = beside(path, ABSENT)
    if absent.exists():
        listed.add(absent)
        yield from _of_dropped(absent, path, digest, results)
        found.absent += len(dropped)
    for name, entry in result.files.items():
        file = result.folder / name
        listed.add(file)
        if not file.exists():
            if name not in dropped:
                yield f"{file} is missing"
            continue
        found.files += 1
        try:
            differs = file.stat().st_size != entry["size"] or sha256(file) != entry["sha256"]
        except OSError as error:
            yield f"{file} cannot be read ({error.strerror})"
            continue
        if differs:
            yield f"{file} has other bytes than were published"


def _of_code(results: Collection[Result], listed: set[Path]) -> Iterator[str]:
    """What is wrong with the tables of the code that results were made by, a table a scale."""
    tables = {codes.table_of(each.path) for each in results}
    listed |= {entry for table in tables for entry in codes.entries(table)}
    for entry in sorted(entry for table in tables for entry in codes.entries(table)):
        try:
            codes.read(entry)
        except Problem as problem:
            yield str(problem)
    needed = [each for each in results if not codes.held(each.record.job)]
    named = {codes.table_of(each.path) / f"{each.record.job['code']}.json" for each in needed}
    for entry in sorted(named - listed):
        yield f"{entry} is missing, which records name; make figures writes it"


def _beside(path: Path, name: str) -> set[Path]:
    """What may belong to a result of which a file cannot be read."""
    stem = path.name.removesuffix(name)
    return {file for file in path.parent.rglob("*") if file.name.startswith(stem)}


def _of_dropped(
    note: Path, path: Path, digest: str, results: Mapping[str, Result]
) -> Iterator[str]:
    """What is wrong with the note of what was dropped of the result with manifest `path`."""
    text = note.read_text(encoding="utf-8")
    content = parsed(text)
    if isinstance(content.get("by"), list | dict):
        yield f"{note} is not as it was written"
        return
    if text != json.dumps(content, indent=1) + "\n":
        yield f"{note} is not as it was written"
    if content["manifest"] != digest:
        yield f"{note} is of another result"
    if content.get("by") == RELEASED:
        return
    by = results.get(content.get("by"))
    if by is None or str(path) not in by.record.inputs:
        yield f"{note} names {content.get('by')}, which did not drop it"


def strangers(scales: Collection[str]) -> Iterator[str]:
    """What lies below results and figures, and there in what is released, beside scales."""
    for top in (Path("results"), Path("figures")):
        released = top / REFERENCE
        for folder, known in ((top, {REFERENCE, SWEEP}), (released, {SWEEPS})):
            for path in sorted(folder.glob("*")):
                is_known = path.name in {*scales, *known} and path.is_dir()
                if is_known or is_passing(Path(path.name)):
                    continue
                inside = [path] if path.is_symlink() or path.is_file() else found_in(path)
                yield from (f"{file} belongs to no scale; remove it" for file in inside)


def root(leaves: dict[str, str]) -> str:
    """Merkle root of files by their paths and digests: every pair of neighbours in the order of
    paths is hashed into one, until one is left; hex sha256."""
    level = [
        hashlib.sha256(f"{path}\0{digest}".encode()).digest()
        for path, digest in sorted(leaves.items())
    ]
    while len(level) > 1:
        pairs = [level[at : at + 2] for at in range(0, len(level), 2)]
        level = [hashlib.sha256(b"".join(pair)).digest() for pair in pairs]
    return level[0].hex() if level else hashlib.sha256(b"").hexdigest()
