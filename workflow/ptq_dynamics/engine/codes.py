"""The table of a scale's code: which definitions, with which digests, the code of a result was.

Every result of one stage and one kind has the same hundred definitions. So a record holds one
digest over them, and what that is of stands once for all results of a scale, in a file that the
digest names: there, one sees what changed since. The job whose result is the first of its code
writes it. No result depends on it: where it is lost, who plans writes it again for what is current;
and removes what no record names any more. Records that were of version 2 hold it themselves.
"""

import json
import os
import re
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ptq_dynamics.base.content import parsed
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.current import account_of
from ptq_dynamics.engine.fingerprint.code import DEFINITIONS, Definitions, over
from ptq_dynamics.engine.paths import records
from ptq_dynamics.engine.specification import Job

FOLDER = "code"  # below a scale's results
ENTRY = re.compile(r"([0-9a-f]{64})\.json")

Table = Mapping[str, Definitions]


def of(jobs: Iterable[Job]) -> Table:
    """What the code of some jobs is now."""
    found = dict[str, Definitions]()
    for job in jobs:
        found.update(job.table())
    return found


def held(job: Mapping[str, Any]) -> Table:
    """What a specification says itself that its code is, if it does."""
    found = job.get(DEFINITIONS)
    return {} if found is None else {job["code"]: found}


def named(folders: Iterable[Path]) -> set[str]:
    """The codes that records in some folders name, and do not say what they are."""
    accounts = (account_of(path) for folder in folders for path in records(folder))
    jobs = [account.get("job") for account in accounts if account is not None]
    found = [job.get("code") for job in jobs if isinstance(job, Mapping) and not held(job)]
    return {code for code in found if isinstance(code, str)}


def table_of(path: str | Path) -> Path:
    """The table for a result, or a folder of results, by its path: pictures have that of the
    results of their scale."""
    return Path("results", *Path(path).parts[1:2], FOLDER)


def entries(table: Path) -> Iterator[Path]:
    """The files of a table."""
    if table.is_dir():
        yield from (path for path in sorted(table.iterdir()) if ENTRY.fullmatch(path.name))


def read(entry: Path) -> Definitions:
    """The definitions that an entry is of; `Problem` where it is not as it was written."""
    try:
        text = entry.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(f"{entry} cannot be read ({error}); make figures writes it") from None
    found = whole(entry, text)
    if found is None:
        raise Problem(f"{entry} is not as it was written; make figures renews it")
    return found


def whole(entry: Path, text: str) -> Definitions | None:
    """The definitions in the text of an entry; None where they are not those of its name."""
    try:
        found: Definitions = parsed(text)
        is_whole = text == as_text(found) and over(found) == entry.stem
    except (ValueError, TypeError):
        return None
    return found if is_whole else None


def known(table: Path) -> Table:
    """What a table tells; nothing of entries that are damaged."""
    found = dict[str, Definitions]()
    for entry in entries(table):
        try:
            found[entry.stem] = read(entry)
        except Problem:
            continue
    return found


def add(table: Path, used: Table) -> None:
    """Have a table tell of some code; `Problem` or OSError where it cannot be written."""
    for digest, definitions in used.items():
        entry = table / f"{digest}.json"
        try:
            read(entry)
        except Problem:
            _write(entry, as_text(definitions))


def _write(entry: Path, text: str) -> None:
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise Problem(f"{entry.parent} is no folder; remove it and build again") from None
    if entry.is_dir():
        raise Problem(f"{entry} is a folder; remove it and build again")
    # Jobs that run at once may write the same one.
    descriptor, name = tempfile.mkstemp(dir=entry.parent, prefix=".", suffix=".partial")
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, 0o644)
        os.replace(name, entry)
    except BaseException:
        os.unlink(name)
        raise


def forget(table: Path, used: Collection[str]) -> None:
    """Remove entries of all other codes; OSError where they cannot be removed."""
    for entry in entries(table):
        if entry.stem not in used and not entry.is_dir():
            entry.unlink(missing_ok=True)


def as_text(definitions: Definitions) -> str:
    """An entry as it stands on disk."""
    return json.dumps(definitions, sort_keys=True, indent=0) + "\n"
