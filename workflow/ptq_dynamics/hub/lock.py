"""The lock file of the public families: at which commit each revision is, with which files.

Branches of the hub move; what was locked is fetched to the bit or not at all.
"""

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from ptq_dynamics.base.content import write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.hub import files
from ptq_dynamics.hub.files import HubFile, Source, explained

LOCK = Path("config/families.lock.json")
TIMEOUT = 30.0  # seconds
TOGETHER = 8  # requests


@dataclass(frozen=True)
class Entry:
    """A revision as it was locked: the commit, and the files that make its checkpoint or its
    tokenizer, by name."""

    commit: Annotated[str, Field(pattern=files.COMMIT.pattern)]
    files: tuple[HubFile, ...]


# By repository, then by revision, or by another key of what is `Wanted`.
Lock = dict[str, dict[str, Entry]]


@dataclass(frozen=True, order=True)
class Wanted:
    """A revision of a repository to lock, or its tokenizer alone."""

    repository: str
    revision: str
    part: files.Part = "checkpoint"

    @property
    def key(self) -> str:
        """Its name in the lock."""
        # Several revisions share one tokenizer.
        return self.part if self.part == "tokenizer" else self.revision


def read(path: Path = LOCK) -> Lock:
    """The lock file, empty where there is none; `Problem` when it is not one."""
    try:
        return TypeAdapter(Lock).validate_json(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValidationError as error:
        first = " ".join(str(error).splitlines()[:3])
        raise Problem(
            f"{path} is no lock file ({first}); restore it, or run ptq-dynamics lock"
        ) from None


def resolve(wanted: Wanted) -> Entry:
    """Ask the hub where a revision is now; `Problem` when it says nothing, or the part is not
    there."""
    from huggingface_hub import HfApi

    repository, revision = wanted.repository, wanted.revision
    source = Source(repository, revision, revision)
    try:
        about = HfApi().model_info(
            repository, revision=revision, files_metadata=True, timeout=TIMEOUT
        )
    # Proxies and mirrors make the library raise all kinds.
    except Exception as error:
        raise explained(error, source, "the list of files") from error
    found = files.choose(wanted.part, (_file(each, source) for each in about.siblings or ()))
    if not found or about.sha is None:
        raise Problem(f"{source} has no whole {wanted.part}; correct config/families.yaml")
    return Entry(about.sha, found)


def _file(about: Any, source: Source) -> HubFile:
    if about.lfs is not None:
        return HubFile(about.rfilename, about.lfs.size, f"sha256:{about.lfs.sha256}")
    if about.size is None or about.blob_id is None:
        raise Problem(
            f"{source}: the hub lists {about.rfilename} without size and digest, as some mirrors "
            "do; set HF_ENDPOINT to one that lists both, or unset it"
        )
    return HubFile(about.rfilename, about.size, f"git-sha1:{about.blob_id}")


def lock(wanted: Iterable[Wanted], path: Path = LOCK) -> tuple[int, list[str]]:
    """Bring the entries of `wanted` up to date in the lock file, which is written whole; how many
    are, and why others not.

    Each that moved is said in one line; what fails, and what is not wanted, stays as it was.
    """
    entries, failed = read(path), list[str]()
    with ThreadPoolExecutor(TOGETHER) as pool:
        asked = {one: pool.submit(resolve, one) for one in sorted(set(wanted))}
    for one, answer in asked.items():
        try:
            found = answer.result()
        except Problem as problem:
            failed.append(str(problem))
            continue
        known = entries.setdefault(one.repository, {}).get(one.key)
        if known is not None and one.part == "tokenizer" and known.files == found.files:
            # At other commits of the repository too; where it was taken from, it stays.
            continue
        if known is not None and known.commit != found.commit:
            commits = f"from {known.commit[:12]} to {found.commit[:12]}"
            print(f"{one.repository}@{one.revision} moved {commits}")
        entries[one.repository][one.key] = found
    content = TypeAdapter(Lock).dump_python(entries, mode="json")
    write_atomically(path, json.dumps(content, sort_keys=True, indent=1) + "\n")
    return len(asked) - len(failed), failed
