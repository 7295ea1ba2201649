"""Files of the hub, which its own library downloads, checked against the lock before they count."""

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ptq_dynamics.base.problem import Problem, is_full_disk
from ptq_dynamics.hub.files import HubFile


@dataclass(frozen=True)
class Source:
    """A repository at a revision, which is at `commit`."""

    repository: str
    revision: str
    commit: str

    def __str__(self) -> str:
        return f"{self.repository}@{self.revision}"


def obtain(
    source: Source, file: HubFile, target: Path, near: Iterable[Path], scratch: Path
) -> None:
    """Have a file at `target`, with just the bytes of its digest.

    It is linked from a place in `near` or the hub's cache, else downloaded below `scratch`, on the
    file system of `target`. Raises `Problem` when it cannot be had.
    """
    from huggingface_hub import hf_hub_download, try_to_load_from_cache

    place = (source.repository, file.name)
    cached = try_to_load_from_cache(*place, revision=source.commit)
    for path in (*near, *([Path(cached).resolve()] if isinstance(cached, str) else [])):
        if file.matches(path):
            _link(path, target)
            return
    # Where the cache holds wrong bytes, the library would copy them.
    for force in (False, True):
        try:
            downloaded = hf_hub_download(
                *place, revision=source.commit, local_dir=scratch, force_download=force
            )
        # Proxies and mirrors make it raise all kinds.
        except Exception as error:
            if is_full_disk(error):
                raise
            raise explained(error, source, file.name) from error
        if file.matches(Path(downloaded)):
            os.replace(downloaded, target)
            return
    raise Problem(
        f"{source}: {file.name} came twice with bytes that are not those of its digest "
        f"{file.digest} at commit {source.commit[:12]}; see to proxies, and run the command again"
    )


def explained(error: Exception, source: Source, what: str) -> Problem:
    """Why something cannot be had from the hub, and what to do, in one line."""
    from huggingface_hub import constants, errors

    lock = "correct its name in config/families.yaml, then run ptq-dynamics lock"
    status = error.response.status_code if isinstance(error, errors.HfHubHTTPError) else None
    match error:
        case errors.RepositoryNotFoundError() if not isinstance(error, errors.GatedRepoError):
            reason = f"there is no such repository, or it is private; {lock}, or run hf auth login"
        case errors.RevisionNotFoundError():
            reason = f"there is no such revision or commit; {lock}"
        case errors.RemoteEntryNotFoundError():
            reason = f"{what} is not there at commit {source.commit[:12]}; run ptq-dynamics lock"
        case _ if status in (401, 403):
            page = f"{constants.ENDPOINT}/{source.repository}"
            reason = f"the hub gives no access; accept its terms at {page}, then run hf auth login"
        case _:
            said = " ".join(str(error).split()) or type(error).__name__
            reason = (
                f"{what} cannot be had ({said}); check the network, its proxy and HF_HUB_OFFLINE, "
                "and run the same command again"
            )
    return Problem(f"{source}: {reason}")


def _link(path: Path, target: Path) -> None:
    """One file under two names: weights are large, and neither name is ever written through. What
    lies on another file system has to be copied."""
    target.unlink(missing_ok=True)
    try:
        os.link(path, target)
    except OSError:
        shutil.copyfile(path, target)
