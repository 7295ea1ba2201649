"""The lock file of the public families: the commit and files of each revision. Branches of the hub
move; a locked file is downloaded with equal bytes, or not at all."""

import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, TypeAdapter, ValidationError

from ptq_dynamics.base.checkpoints import forms, require_plain, require_plain_names
from ptq_dynamics.base.content import write_atomically
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.hub import files, folders
from ptq_dynamics.hub.files import HubFile, Source, explaining

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoSibling

LOCK = Path("config/families.lock.json")
TIMEOUT = 30.0  # seconds
TOGETHER = 8  # requests


@dataclass(frozen=True)
class Entry:
    """A locked revision: its commit, and the files of its checkpoint or tokenizer by name."""

    commit: Annotated[str, Field(pattern=files.COMMIT.pattern)]
    files: tuple[HubFile, ...]


Lock = dict[str, dict[str, Entry]]  # by repository, then by `Wanted.key`


@dataclass(frozen=True, order=True)
class Wanted:
    """A revision of a repository to lock, or its tokenizer alone."""

    repository: str
    revision: str
    part: files.Part = "checkpoint"

    @property
    def key(self) -> str:
        """The name in the lock file; several revisions share one tokenizer."""
        return self.part if self.part == "tokenizer" else self.revision


def read_lock(path: Path = LOCK) -> Lock:
    """Read the lock file; empty if there is none. Raises `Problem` if it is invalid."""
    try:
        return TypeAdapter(Lock).validate_json(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValidationError as error:
        first = " ".join(str(error).splitlines()[:3])
        mend = "restore it, or run ptq-dynamics lock"
        raise Problem(f"{path} is no lock file ({first}); {mend}") from None


def pinned(wanted: Wanted) -> Entry:
    """Return the present commit and files of a revision on the hub, or in its cache if
    HF_HUB_OFFLINE is set. Raises `Problem` if they are missing."""
    from huggingface_hub import HfApi, constants

    if constants.HF_HUB_OFFLINE:
        return _cached(wanted)
    source = Source(wanted.repository, wanted.revision, wanted.revision)
    with explaining(source, "the list of files"):
        about = HfApi().model_info(
            wanted.repository, revision=wanted.revision, files_metadata=True, timeout=TIMEOUT
        )
    every = about.siblings or ()
    require_plain_names(source, (sibling.rfilename for sibling in every))
    chosen = files.choose(wanted.part, (_file(sibling, source) for sibling in every))
    if not chosen or about.sha is None:
        raise Problem(f"{source} has no complete {wanted.part}; correct config/families.yaml")
    return Entry(about.sha, chosen)


def _cached(wanted: Wanted) -> Entry:
    """Return a revision in the hub's cache, where the digest of a file is the name of its copy."""
    from huggingface_hub import snapshot_download

    kinds = {64: "sha256", 40: "git-sha1"}
    with suppress(OSError, ValueError):
        folder = Path(
            snapshot_download(wanted.repository, revision=wanted.revision, local_files_only=True)
        )
        digests = {path: path.resolve().name for path in folder.iterdir()}
        every = [
            HubFile(path.name, path.stat().st_size, f"{kinds[len(digest)]}:{digest}")
            for path, digest in digests.items()
            if files.is_of_checkpoint(path.name) and len(digest) in kinds
        ]
        if chosen := files.choose(wanted.part, every):
            return Entry(folder.name, chosen)
    place = f"{wanted.repository}@{wanted.revision}"
    raise Problem(f"{place} is not complete in the hub's cache; unset HF_HUB_OFFLINE")


def revisions(repository: str, pattern: str, recorded: Sequence[str] = ()) -> list[str]:
    """Return the branches and tags that match a shell pattern, or a commit; without a network, of
    those `recorded`, or in the cache if there are none. Raises `Problem` if nothing matches."""
    from huggingface_hub import HfApi, constants, errors, scan_cache_dir

    if files.COMMIT.match(pattern):
        return [pattern]
    every = [*recorded]
    if not every and constants.HF_HUB_OFFLINE:
        with suppress(errors.CacheNotFound):
            repositories = scan_cache_dir(constants.HF_HUB_CACHE).repos
            own = (r for r in repositories if (r.repo_id, r.repo_type) == (repository, "model"))
            every = [name for cached in own for name in cached.refs]
    elif not every:
        with explaining(Source(repository, "main", "main"), "its branches"):
            refs = HfApi().list_repo_refs(repository)
        every = [ref.name for ref in (*refs.branches, *refs.tags)]
    if not (matching := sorted(name for name in every if fnmatch(name, pattern))):
        near = ", ".join(sorted(every)[:8]) or "none"
        raise Problem(f"{repository} has no revision like {pattern!r} (it has: {near})")
    return matching


def model(repository: str, revision: str, locked: Entry, *, trusts_code: bool) -> dict[str, object]:
    """Return the fields of the model at a locked revision (`folders.about`)."""
    import huggingface_hub as hub

    commit = locked.commit
    source = Source(repository, revision, commit)
    with explaining(source, "config.json, or what safetensors hold,"):
        config = Path(hub.hf_hub_download(repository, files.CONFIG, revision=commit))
        if hub.constants.HF_HUB_OFFLINE:
            metadata = hub.get_local_safetensors_metadata(config.parent)
        else:
            metadata = hub.get_safetensors_metadata(repository, revision=commit)
    require_plain(source, config.parent, forms(metadata))
    about = json.loads(config.read_text(encoding="utf-8"))
    code = [f.name for f in locked.files if files.is_code(f.name)] if trusts_code else None
    return folders.about(source, about, forms(metadata), code)


def _file(about: "RepoSibling", source: Source) -> HubFile:
    if about.lfs is not None:
        return HubFile(about.rfilename, about.lfs.size, f"sha256:{about.lfs.sha256}")
    if about.size is None or about.blob_id is None:
        mend = "set HF_ENDPOINT to a mirror that lists both, or unset it"
        raise Problem(f"{source}: the hub lists {about.rfilename} without size and digest; {mend}")
    return HubFile(about.rfilename, about.size, f"git-sha1:{about.blob_id}")


def lock(wanted: Iterable[Wanted], path: Path = LOCK) -> tuple[int, list[str]]:
    """Bring the entries of `wanted` up to date in the lock file. Return how many are, and the
    errors of the others, which stay as before. Prints a line for each revision that has moved."""
    entries, failed = read_lock(path), list[str]()
    with ThreadPoolExecutor(TOGETHER) as pool:
        requests = {one: pool.submit(pinned, one) for one in sorted(set(wanted))}
    for one, answer in requests.items():
        try:
            entry = answer.result()
        except Problem as problem:
            failed.append(str(problem))
            continue
        known = entries.setdefault(one.repository, {}).get(one.key)
        if known is not None and one.part == "tokenizer" and known.files == entry.files:
            # An equal tokenizer at another commit keeps its entry.
            continue
        if known is not None and known.commit != entry.commit:
            commits = f"from {known.commit[:12]} to {entry.commit[:12]}"
            print(f"{one.repository}@{one.revision} moved {commits}")
        entries[one.repository][one.key] = entry
    content = TypeAdapter(Lock).dump_python(entries, mode="json")
    write_atomically(path, json.dumps(content, sort_keys=True, indent=1) + "\n")
    return len(requests) - len(failed), failed
