"""The table of a scale's code: which definitions, with which digests, the code of a result was.

Every result of one stage and one kind has the same hundred definitions. So a record holds one
digest over them, and what that is of stands once for all results of a scale, in a file that the
digest names: there, one sees what changed since. The job whose result is the first of its code
writes it. No result depends on it: where it is lost, who plans writes it again for what is current;
and removes what no record names any more.
"""

import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ptq_dynamics.base.content import parsed
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.jobs.current import account_of
from ptq_dynamics.jobs.fingerprint.code import Definitions, over
from ptq_dynamics.jobs.paths import records
from ptq_dynamics.jobs.specification import Job

FOLDER = "code"  # below a scale's results
ENTRY = re.compile(r"([0-9a-f]{64})\.json")

Table = Mapping[str, Definitions]


def of(jobs: Iterable[Job]) -> Table:
    """What the code of some jobs is now."""
    found = dict[str, Definitions]()
    for job in jobs:
        found.update(job.table())
    return found


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
        found: Definitions = parsed(text)
        whole = text == as_text(found) and over(found) == entry.stem
    except (OSError, ValueError, TypeError) as error:
        raise Problem(f"{entry} cannot be read ({error}); make figures writes it") from None
    if not whole:
        raise Problem(f"{entry} is not as it was written; make figures renews it")
    return found


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
    """Have a table tell of some code."""
    for digest, definitions in used.items():
        entry = table / f"{digest}.json"
        try:
            read(entry)
        except Problem:
            try:
                table.mkdir(parents=True, exist_ok=True)
            except (FileExistsError, NotADirectoryError):
                raise Problem(f"{table} is no folder; remove it and build again") from None
            # Jobs that run at once may write the same one.
            with tempfile.NamedTemporaryFile(
                "w", encoding="utf-8", dir=table, prefix=".", suffix=".partial", delete=False
            ) as file:
                file.write(as_text(definitions))
            os.chmod(file.name, 0o644)
            os.replace(file.name, entry)


def forget(table: Path, used: Table, folders: Iterable[Path]) -> None:
    """Remove what no record in some folders names, and is not used either."""
    left = [entry for entry in entries(table) if entry.stem not in used]
    if left:
        accounts = (account_of(path) for folder in folders for path in records(folder))
        named = {account["job"].get("code") for account in accounts if account is not None}
        for entry in left:
            if entry.stem not in named:
                entry.unlink(missing_ok=True)


def as_text(definitions: Definitions) -> str:
    """An entry as it stands on disk."""
    return json.dumps(definitions, sort_keys=True, indent=0) + "\n"
