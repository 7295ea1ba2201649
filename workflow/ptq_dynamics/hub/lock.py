"""The lock file of the public families: at which commit each revision is, with which files.

Branches of the hub move; what was locked is fetched to the bit or not at all.
"""

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import TypeAdapter, ValidationError

from ptq_dynamics.base.content import write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.context import Progress
from ptq_dynamics.hub import files
from ptq_dynamics.hub.download import Source, explained
from ptq_dynamics.hub.files import HubFile

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoSibling

LOCK = Path("config/families.lock.json")
TIMEOUT = 30.0  # seconds
TOGETHER = 8  # requests
RELOCK = "run ptq-dynamics lock"


@dataclass(frozen=True)
class Entry:
    """A revision as it was locked: the commit, and the files that make its checkpoint, its code or
    its tokenizer, by name."""

    commit: str
    files: tuple[HubFile, ...]


# By repository, then by revision, or by another key of what is `Wanted`.
Entries = Mapping[str, Mapping[str, Entry]]


@dataclass(frozen=True)
class Lock:
    """A lock file and what it holds."""

    path: Path
    entries: Entries

    def of(self, repository: str) -> Mapping[str, Entry]:
        """What revisions of a repository are locked to."""
        return self.entries.get(repository, {})


@dataclass(frozen=True, order=True)
class Wanted:
    """A revision of a repository to lock, or its code or tokenizer alone."""

    repository: str
    revision: str
    part: Literal["checkpoint", "code", "tokenizer"] = "checkpoint"

    @property
    def key(self) -> str:
        """Its name in the lock."""
        if self.part == "tokenizer":
            return TOKENIZER_KEY
        return code_key(self.revision) if self.part == "code" else self.revision


# Name in the lock of a repository's tokenizer, which several revisions share.
TOKENIZER_KEY = "tokenizer"
PARTS = {
    "checkpoint": files.of_checkpoint,
    "code": files.of_code,
    "tokenizer": files.of_tokenizer,
}


def code_key(commit: str) -> str:
    """Name in the lock of a repository's code at a commit, which can be that of a checkpoint."""
    return f"code at {commit}"


@dataclass(frozen=True)
class Outcome:
    """What locking has found: how many revisions are as they were or new, and one line for each
    that moved and each that could not be resolved."""

    resolved: int
    moved: tuple[str, ...]
    failed: tuple[str, ...]


def read(path: Path = LOCK) -> Lock:
    """The lock file, empty where there is none; `Problem` when it is not one."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        entries = TypeAdapter(dict[str, dict[str, Entry]]).validate_python(content)
    except FileNotFoundError:
        return Lock(path, {})
    except (ValidationError, ValueError) as error:
        first = " ".join(str(error).splitlines()[:3])
        raise Problem(f"{path} is no lock file ({first}); restore it, or {RELOCK}") from None
    for repository, revisions in entries.items():
        for revision, entry in revisions.items():
            sound = files.COMMIT.fullmatch(entry.commit) and all(
                files.DIGEST.fullmatch(file.digest) and files.is_fetched(file.name)
                for file in entry.files
            )
            if not sound:
                raise Problem(
                    f"{path} has no full commit, or a file that is none of a checkpoint or has no "
                    f"digest, in {repository}@{revision}; {RELOCK}"
                )
    return Lock(path, entries)


def write(path: Path, entries: Entries) -> None:
    """Write the lock file, whole or not at all; equal entries give equal bytes."""
    content = {
        repository: {revision: asdict(entry) for revision, entry in revisions.items()}
        for repository, revisions in entries.items()
    }
    write_atomically(path, json.dumps(content, sort_keys=True, indent=1) + "\n")


def resolve(wanted: Wanted) -> Entry:
    """Ask the hub where a revision is now; `Problem` when it says nothing, or there is no
    checkpoint, no code or no tokenizer."""
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
    if about.sha is None:
        raise Problem(f"{source}: the hub does not say at which commit it is")
    found = PARTS[wanted.part](_file(each, source) for each in about.siblings or ())
    match wanted.part:
        case "code" if not found:
            raise Problem(f"{source} has no Python modules; correct code of its family")
        case "tokenizer" if not found:
            raise Problem(f"{source} has no tokenizer; say reads_as of its family")
        case "checkpoint" if not (
            files.has_weights(found) and any(file.name == files.CONFIG for file in found)
        ):
            raise Problem(
                f"{source} is no checkpoint: it lacks {files.CONFIG} or weights; leave it out"
            )
    return Entry(about.sha, found)


def _file(about: "RepoSibling", source: Source) -> HubFile:
    if about.lfs is not None:
        return HubFile(about.rfilename, about.lfs.size, f"sha256:{about.lfs.sha256}")
    if about.size is None or about.blob_id is None:
        raise Problem(
            f"{source}: the hub lists {about.rfilename} without size and digest, as some mirrors "
            "do; set HF_ENDPOINT to one that lists both, or unset it"
        )
    return HubFile(about.rfilename, about.size, f"git-sha1:{about.blob_id}")


def lock(wanted: Iterable[Wanted], path: Path = LOCK) -> Outcome:
    """Bring the entries of `wanted` up to date in the lock file.

    Each that moved and each that fails is said in one line, while the others go on; what fails, and
    what is not wanted, stays as it was.
    """
    progress = Progress("lock")
    entries = {name: dict(revisions) for name, revisions in read(path).entries.items()}
    every = sorted(set(wanted))
    moved, failed = list[str](), list[str]()
    pool = ThreadPoolExecutor(TOGETHER)
    try:
        answers = {pool.submit(resolve, one): one for one in every}
        for done, future in enumerate(as_completed(answers), start=1):
            one = answers[future]
            try:
                found = future.result()
            except Problem as problem:
                failed.append(str(problem))
                progress.say(failed[-1])
                continue
            known = entries.setdefault(one.repository, {}).get(one.key)
            if known is not None and one.part == "tokenizer" and known.files == found.files:
                # At other commits of the repository too; where it was taken from, it stays.
                found = known
            if known is not None and known.commit != found.commit:
                commits = f"from {known.commit[:12]} to {found.commit[:12]}"
                moved.append(f"{one.repository}@{one.revision} moved {commits}")
                progress.say(moved[-1])
            entries[one.repository][one.key] = found
            progress.maybe(f"{done} of {len(every)} revisions")
    finally:
        # Interrupted, what is known by now is kept.
        pool.shutdown(wait=False, cancel_futures=True)
        write(path, entries)
    return Outcome(len(every) - len(failed), tuple(sorted(moved)), tuple(sorted(failed)))
