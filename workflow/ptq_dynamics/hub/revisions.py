"""Revisions of a repository on the hub, or of its copy in the hub's cache where HF_HUB_OFFLINE is
set: which there are, what they consist of, and what model they have."""

import json
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.hub import files, folders
from ptq_dynamics.hub.files import CONFIG, HubFile, Source, explained
from ptq_dynamics.hub.lock import Entry, Wanted


def named(repository: str, pattern: str) -> list[str]:
    """Branches and tags whose names fit a pattern of the shell; `Problem` where there are none."""
    from huggingface_hub import HfApi, constants

    if constants.HF_HUB_OFFLINE:
        every = [name for each in _cached(repository) for name in each.refs]
    else:
        try:
            refs = HfApi().list_repo_refs(repository)
        # Proxies and mirrors make the library raise all kinds.
        except Exception as error:
            raise explained(error, Source(repository, "main", "main"), "its branches") from error
        every = [each.name for each in (*refs.branches, *refs.tags)]
    found = sorted(name for name in every if fnmatch(name, pattern))
    if not found:
        shown = ", ".join(sorted(every)[:8]) or "none"
        raise Problem(f"{repository} has no revision like {pattern!r} (it has: {shown})")
    return found


def cached(wanted: Wanted) -> Entry:
    """A revision as the hub's cache has it; `Problem` where it lacks a part."""
    about = [each for each in _cached(wanted.repository) if wanted.revision in each.refs]
    # Copies are named by their digests.
    kinds = {64: "sha256", 40: "git-sha1"}
    every = [
        HubFile(file.file_name, file.size_on_disk, f"{kinds[len(name)]}:{name}")
        for each in about
        for file in each.files
        if files.is_of_checkpoint(file.file_name) and len(name := file.blob_path.name) in kinds
    ]
    if not (found := files.choose(wanted.part, every)):
        raise Problem(
            f"{wanted.repository}@{wanted.revision} is not in the hub's cache as a whole; unset "
            "HF_HUB_OFFLINE to download it"
        )
    return Entry(about[0].commit_hash, found)


def _cached(repository: str) -> Iterator[Any]:
    from huggingface_hub import scan_cache_dir

    for each in scan_cache_dir().repos:
        if each.repo_id == repository and each.repo_type == "model":
            yield from each.revisions


def model(repository: str, revision: str, commit: str) -> dict[str, Any]:
    """What the files of a revision say of its model (`folders.about`)."""
    import huggingface_hub as hub

    try:
        config = Path(hub.hf_hub_download(repository, CONFIG, revision=commit))
        if hub.constants.HF_HUB_OFFLINE:
            metadata = hub.get_local_safetensors_metadata(config.parent)
        else:
            metadata = hub.get_safetensors_metadata(repository, revision=commit)
    except Exception as error:
        source = Source(repository, revision, commit)
        raise explained(error, source, f"{CONFIG}, or what its safetensors hold,") from error
    return folders.about(json.loads(config.read_text(encoding="utf-8")), metadata)
