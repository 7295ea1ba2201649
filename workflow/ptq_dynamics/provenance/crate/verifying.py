"""Compares a crate with the results that lie here."""

import json
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ptq_dynamics.base.content import sha256
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.provenance.crate.graph import Graph

METADATA = "ro-crate-metadata.json"
ENTITIES = "@graph"
# What reading a damaged zip ends in, or one that is encrypted or packed in ways unknown here.
HARMS = (OSError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error)


def agent(place: Path) -> str | None:
    """Who a crate says ran its jobs, where that is a person."""
    with _unpacked(place) as folder:
        found = _document(folder)[ENTITIES]
        return next((e.get("name") for e in found if e.get("@type") == "Person"), None)


def verify(place: Path, here: Graph) -> list[str]:
    """What a crate says other than the results here, or other than its own files are, in lines."""
    wrong: list[str] = []
    with _unpacked(place) as folder:
        document = _document(folder)
        told = {each["@id"]: each for each in document[ENTITIES]}
        if len(told) != len(document[ENTITIES]):
            wrong.append("the crate tells twice of one thing")
        wrong += _of_files(folder, told)
    mine = here.crate.metadata.generate()
    wrong += [
        f"{key} of the crate differs from the one here"
        for key in sorted(document.keys() | mine.keys())
        if key != ENTITIES and document.get(key) != mine.get(key)
    ]
    made = {each["@id"]: each for each in mine[ENTITIES]}
    for name in sorted(told.keys() | made.keys()):
        if name not in made:
            wrong.append(f"{name} is in the crate alone")
        elif name not in told:
            wrong.append(f"{name} is here alone")
        else:
            one, other = told[name], made[name]
            keys = sorted(
                key for key in one.keys() | other.keys() if one.get(key) != other.get(key)
            )
            if keys:
                wrong.append(f"{name} differs from the one here in {', '.join(keys)}")
    return wrong


def _of_files(folder: Path, told: dict[str, dict[str, Any]]) -> Iterator[str]:
    """What is wrong with the files that go with a crate."""
    named = {unquote(name): each["sha256"] for name, each in told.items() if "sha256" in each}
    for name, digest in named.items():
        try:
            file = (folder / name).resolve()
            if not file.is_relative_to(folder.resolve()):
                yield f"{name} leads out of the crate"
            elif not file.is_file():
                yield f"{name} is missing in the crate"
            elif sha256(file) != digest:
                yield f"{name} has other bytes in the crate than the crate says"
        except (OSError, ValueError) as error:
            yield f"{name[:80]!r} cannot be read ({error.__class__.__name__})"
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = file.relative_to(folder).as_posix()
        if name not in {*named, METADATA}:
            yield f"{name} lies in the crate, which does not name it"


def _document(folder: Path) -> dict[str, Any]:
    """What the metadata of a crate say."""
    file = folder / METADATA
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        entities = [{**each, "@id": str(each["@id"])} for each in content[ENTITIES]]
        return {**content, ENTITIES: entities}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Problem(f"{file.name} cannot be read ({error}); is this a crate?") from None


@contextmanager
def _unpacked(place: Path) -> Iterator[Path]:
    """The folder of a crate, which may be a zip, a folder, or its metadata file."""
    if place.is_dir():
        yield place
        return
    if place.name == METADATA and place.is_file():
        yield place.parent
        return
    with tempfile.TemporaryDirectory() as folder:
        try:
            with zipfile.ZipFile(place) as archive:
                archive.extractall(folder)
        except HARMS as error:
            raise Problem(f"{place} is no crate ({error}); name a folder or a zip") from None
        yield Path(folder)
