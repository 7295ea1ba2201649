"""The stage that typesets the paper with Typst, from figures, claims, tables and records.

The compiler's fonts and the date of the newest input make equal bytes from equal inputs. Records
are no inputs, so a result that is rebuilt to the same bytes does not rebuild the paper."""

import datetime
import hashlib
import json
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ptq_dynamics.base import needs
from ptq_dynamics.base.content import canonical, sha256
from ptq_dynamics.base.fields import Strict
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.claims.definitions import CLAIMS, FOREST
from ptq_dynamics.engine import manifest, record
from ptq_dynamics.engine.context import Context
from ptq_dynamics.engine.paths import RECORD, beside
from ptq_dynamics.figures.labels import FINDING, ORIGIN, rounded

REPOSITORY = Path(__file__).resolve().parents[3]
PAPER, DATA = "paper.pdf", "data.json"
FOLDER, MAIN = "paper", "paper.typ"
# Places in a diagnostic, the innermost first.
PLACE = re.compile(r"┌─ (\S.*?):(\d+):\d+")
# Files with functions; errors are reported where the text calls them.
HELPERS = ("lib.typ", "style.typ")


class PaperSettings(Strict):
    """Configuration for the text, as plain data, and digests of the text's files by name. Inputs
    are `claims`, `tables`, `measurements` and `figure NAME`."""

    contents: dict[str, Any]  # only paper.typ knows its shape
    sources: dict[str, str]


def sources(root: Path) -> dict[str, str]:
    """Return digests of the text's files by name; `Problem` if paper.typ is missing."""
    folder = root / FOLDER  # folders of scales below it hold results
    texts = sorted((*folder.glob("*.typ"), *folder.glob("sections/*.typ")))
    if folder / MAIN not in texts:
        raise Problem(f"{FOLDER}/{MAIN} is missing; restore it with git checkout {FOLDER}")
    return {path.relative_to(folder).as_posix(): sha256(path) for path in texts}


def run(context: Context[PaperSettings]) -> Mapping[str, object]:
    """Write paper.pdf and data.json with its data; the fact is the number of figures."""
    about, folder = context.settings.contents, context.scratch / "text"
    # The order of inputs differs between a plan and a record.
    inputs = {key: context.input(key) for key in sorted(context.inputs)}
    drawn = [name for name, figure in about["figures"].items() if figure["missing"] is None]
    shutil.rmtree(folder, ignore_errors=True)
    copy(context.settings.sources, REPOSITORY, folder)
    files = {name: inputs[needs.CLAIMS].file(name) for name in (CLAIMS, f"{FOREST}.pdf")}
    for name in about["tables"]:
        files[f"tables/{name}.csv"] = inputs[needs.TABLES].file(f"{name}.csv")
    for name in drawn:
        files[f"figures/{name}.pdf"] = inputs[needs.figure(name)].file(f"{name}.pdf")
    for place, path in files.items():
        (folder / place).parent.mkdir(exist_ok=True)
        shutil.copyfile(path, folder / place)
    made = recorded(inputs.values())
    newest = max(entry["done"] for entry in made["records"].values())
    content = {
        **about,
        **made,
        "measured": {"values": inputs[needs.MEASUREMENTS].facts["rows"]},
        "findings": {name: inputs[needs.figure(name)].facts.get(FINDING) for name in drawn},
        "inputs": {key: str(result.path) for key, result in inputs.items()},
        "newest": newest,
        "identity": context.identity,
        "origin": ORIGIN.format(scale=about["scale"]["description"], identity=context.identity),
    }
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    (folder / DATA).write_text(text + "\n", encoding="utf-8")
    date = datetime.datetime.fromisoformat(f"{newest}+00:00")
    (context.out / PAPER).write_bytes(compiled(folder, int(date.timestamp())))
    shutil.copyfile(folder / DATA, context.out / DATA)
    return {"figures": len(drawn)}


def recorded(inputs: Iterable[manifest.Manifest]) -> dict[str, Any]:  # for paper.typ
    """Return records of inputs and their lineage by path of the manifest, the number of unknown
    ones, and versions of libraries. Raises `Problem` if an input's record is missing."""
    first = {str(result.path): result.digest() for result in inputs}
    records, unknown, waiting = dict[str, record.Record](), set[str](), dict(first)
    while waiting:
        path, digest = waiting.popitem()
        if path in records:
            continue
        place = beside(path, RECORD)
        # Imported results may lack records of their inputs.
        if path in first or (place.exists() and manifest.read(Path(path)).digest() == digest):
            records[path] = record.read(place)
            waiting |= records[path].inputs
        else:
            unknown.add(path)
    pairs = {pair for entry in records.values() for pair in entry.packages.items()}
    names = sorted({name for name, version in pairs if version}, key=str.casefold)
    packages = {name: sorted(v for other, v in pairs if v and other == name) for name in names}
    pythons = sorted({entry.machine.python for entry in records.values()})
    return {
        "records": {path: _plain(records[path]) for path in sorted(records)},
        "unknown": len(unknown),
        "trained": rounded(sum(made.facts.get(record.TRAINED, 0) for made in records.values())),
        "packages": packages,
        "environment": hashlib.sha256(canonical([packages, pythons]).encode()).hexdigest(),
    }


def _plain(made: record.Record) -> dict[str, object]:
    machine, device, stage = made.machine, made.device, str(made.job["stage"])
    began = datetime.datetime.fromisoformat(made.started).astimezone(datetime.UTC)
    return {
        "kind": "figures" if stage.startswith("figures.") else stage,
        "identity": made.identity,
        "done": f"{began + datetime.timedelta(seconds=made.seconds):%Y-%m-%d %H:%M:%S}",
        "commit": None if made.git is None else made.git.commit + "+" * made.git.dirty,
        "accepted": bool(made.accepted),
        "tokens": made.facts.get(record.TRAINED, 0),
        "seconds": made.seconds,
        "cpu_seconds": made.cpu_seconds,
        "gpus": 0 if device.kind == "cpu" else device.count or 1,
        "peak_memory": made.peak_memory,
        "machine": [
            machine.processor or machine.architecture,
            f"{machine.system} {machine.architecture}, Python {machine.python}",
            f"{machine.cores or 'unknown'} cores, {machine.memory / 2**30:.0f} GiB",
            device.kind if device.name is None else f"{device.count or 1} × {device.name}",
        ],
    }


def copy(sources: Mapping[str, str], root: Path, target: Path) -> None:
    """Copy the text to another folder; `Problem` if it was edited after planning."""
    for name, digest in sources.items():
        path, copied = root / FOLDER / name, target / name
        if not path.is_file() or sha256(path) != digest:
            place = f"{FOLDER}/{name}"
            raise Problem(f"{place} was edited since this job was planned; run the command again")
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copied)


def compiled(folder: Path, timestamp: int) -> bytes:
    """Return the PDF of a text, dated in seconds since 1970; `Problem` names a wrong place."""
    import typst

    compiler = typst.Compiler(str(folder / MAIN), root=str(folder), ignore_system_fonts=True)
    try:
        made, warnings = compiler.compile_with_warnings(format="pdf", timestamp=timestamp)
    except typst.TypstError as error:
        raise Problem(in_one_line(error.diagnostic, error.message, folder)) from None
    for warning in warnings:
        raise Problem(in_one_line(warning.diagnostic, warning.message, folder))
    assert isinstance(made, bytes)
    return made


def in_one_line(diagnostic: str, message: str, folder: Path) -> str:
    """Return a diagnostic of Typst in one line."""
    # Typst names files relative to the working directory, or to the root of the text.
    below = f"{folder.name}/"
    places = [(n.rpartition(below)[2].lstrip("/"), line) for n, line in PLACE.findall(diagnostic)]
    outside = [(name, line) for name, line in places if name not in HELPERS] or places
    place = f"{FOLDER}/{outside[0][0]}:{outside[0][1]}" if outside else FOLDER
    return f"{place}: {' '.join(message.removeprefix('assertion failed: ').split())}"
