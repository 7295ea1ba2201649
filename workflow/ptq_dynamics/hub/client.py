"""Files of the hub over HTTP: taken on where a connection broke, and checked before they count.

Plain requests, one a file: what the library itself downloads with keeps no part of a file whose
process was killed, and a file of weights takes minutes. Addresses, token, timeout, cache and the
offline switch are the library's own, and so are its environment variables.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TypeVar

import httpx
from huggingface_hub import constants, hf_hub_url, is_offline_mode, try_to_load_from_cache
from huggingface_hub.errors import (
    DisabledRepoError,
    GatedRepoError,
    HfHubHTTPError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import (
    build_hf_headers,
    get_session,
    hf_raise_for_status,
    parse_ratelimit_headers,
)

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.context import Progress
from ptq_dynamics.hub.files import HubFile

WAITS = (1.0, 5.0, 20.0, 60.0)  # seconds before what failed is tried again
TRIES = 2  # of a file that comes with wrong bytes
AGAIN = "run the same command again to go on"

T = TypeVar("T")


@dataclass(frozen=True)
class Source:
    """A repository at a revision, which is at `commit`."""

    repository: str
    revision: str
    commit: str

    def __str__(self) -> str:
        return f"{self.repository}@{self.revision}"


def obtain(
    source: Source,
    file: HubFile,
    target: Path,
    partial: Path,
    near: Iterable[Path],
    progress: Progress,
) -> None:
    """Have a file at `target`, with just the bytes of its digest.

    It is linked from the first place in `near` that has it, or from the hub's cache, else
    downloaded; `partial`, on the file system of `target`, then keeps what has come so far. Raises
    `Problem` when it cannot be had.
    """
    if file.matches(target):
        return
    for path in (*near, *_cached(source, file)):
        if file.matches(path):
            _link(path, target, partial)
            return
    if is_offline_mode():
        raise Problem(
            f"{source}: {file.name} is not in the hub's cache and HF_HUB_OFFLINE is set; unset it, "
            f"or first run hf download {source.repository} --revision {source.commit} where there "
            "is a network"
        )
    for _ in range(TRIES):
        _download(source, file, partial, progress)
        if file.matches(partial):
            os.replace(partial, target)
            return
        partial.unlink(missing_ok=True)
        progress.say(f"{source}: {file.name} came with wrong bytes")
    raise Problem(
        f"{source}: {file.name} came {TRIES} times with bytes that are not those of its digest "
        f"{file.digest} at commit {source.commit[:12]}; see what lies between this machine and the "
        "hub, such as a proxy, and run the same command again"
    )


def patiently(action: Callable[[], T], what: str, source: Source, progress: Progress) -> T:
    """What `action`, a request, gives; see `Patience`."""
    patience = Patience(what, source, progress)
    while True:
        try:
            return action()
        except httpx.HTTPError as error:
            patience.wait(error)


class Patience:
    """Waits after failures of requests for `what`, longer each time, as long as another try makes
    sense."""

    def __init__(self, what: str, source: Source, progress: Progress) -> None:
        self._what, self._source, self._progress = what, source, progress
        self._failures = 0

    def renew(self) -> None:
        """Something has come: further failures count anew."""
        self._failures = 0

    def wait(self, error: httpx.HTTPError) -> None:
        """Wait before the next try; `Problem` when there should be none."""
        final = _final(error, self._what, self._source)
        if final is not None:
            raise Problem(f"{self._source}: {final}") from error
        if self._failures == len(WAITS):
            raise Problem(
                f"{self._source}: {self._what} is out of reach after {len(WAITS) + 1} tries "
                f"({_reason(error)}); check the network, and {AGAIN}"
            ) from error
        seconds = max(WAITS[self._failures], _asked(error))
        self._failures += 1
        self._progress.say(f"{self._what}: {_reason(error)}; trying again in {seconds:.0f} s")
        time.sleep(seconds)


def _cached(source: Source, file: HubFile) -> Iterable[Path]:
    found = try_to_load_from_cache(source.repository, file.name, revision=source.commit)
    return [Path(found).resolve()] if isinstance(found, str) else []


def _link(path: Path, target: Path, partial: Path) -> None:
    """One file under two names: weights are large, and neither name is ever written through. What
    lies on another file system has to be copied."""
    target.unlink(missing_ok=True)
    try:
        os.link(path, target)
    except OSError:
        shutil.copyfile(path, partial)
        os.replace(partial, target)


def _download(source: Source, file: HubFile, partial: Path, progress: Progress) -> None:
    patience, furthest = Patience(file.name, source, progress), 0
    while True:
        try:
            _receive(source, file, partial, progress)
            return
        except httpx.HTTPError as error:
            # A server that begins anew each time gets nowhere.
            reached = partial.stat().st_size if partial.exists() else 0
            if reached > furthest:
                furthest = reached
                patience.renew()
            patience.wait(error)


def _receive(source: Source, file: HubFile, partial: Path, progress: Progress) -> None:
    """One request for what `partial` has not yet; no more bytes than the file has."""
    had = partial.stat().st_size if partial.exists() else 0
    if had >= file.size > 0:
        return
    url = hf_hub_url(source.repository, file.name, revision=source.commit)
    # Compressed, a part would not be a part of the file.
    headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
    if had:
        headers["Range"] = f"bytes={had}-"
    # The library's session leaves the token out where it is sent on to another host.
    with get_session().stream(
        "GET", url, headers=headers, timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT
    ) as response:
        if response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
            return
        hf_raise_for_status(response)
        goes_on = response.status_code == httpx.codes.PARTIAL_CONTENT
        done, begun = had if goes_on else 0, time.monotonic()
        first = done
        with partial.open("ab" if goes_on else "wb") as out:
            for chunk in response.iter_bytes():
                out.write(chunk)
                done += len(chunk)
                if done > file.size:
                    return
                rate = (done - first) / max(time.monotonic() - begun, 1e-3)
                progress.maybe(
                    f"{file.name}  {done / 1e9:.2f} of {file.size / 1e9:.2f} GB  "
                    f"{rate / 1e6:.0f} MB/s"
                )


def _final(error: httpx.HTTPError, what: str, source: Source) -> str | None:
    """Why a failure will not pass, and what to do; None where it may."""
    page = f"{constants.ENDPOINT}/{source.repository}"
    login = f"accept its terms at {page}, then run hf auth login"
    lock = "correct its name in config/families.yaml, then run ptq-dynamics lock"
    status = error.response.status_code if isinstance(error, HfHubHTTPError) else None
    match error:
        case GatedRepoError():
            return f"the repository is gated; {login}"
        case DisabledRepoError():
            return "the hub has disabled the repository; leave it out"
        case RepositoryNotFoundError():
            return f"there is no such repository, or it is private; {lock}, or run hf auth login"
        case RevisionNotFoundError():
            return f"there is no such revision or commit; {lock}"
        case RemoteEntryNotFoundError():
            return f"{what} is not there at commit {source.commit[:12]}; run ptq-dynamics lock"
        case httpx.TransportError():
            return None
    if status in (401, 403):
        return f"the hub gives no access ({status}); {login}"
    if status is None or (status < 500 and status not in (408, 429)):
        return f"{what} cannot be had ({_reason(error)}); see {page}"
    return None


def _asked(error: httpx.HTTPError) -> float:
    """Seconds that the hub wants to be left alone."""
    if not isinstance(error, HfHubHTTPError):
        return 0.0
    headers = error.response.headers
    limit = parse_ratelimit_headers(headers)
    if limit is not None and limit.remaining == 0:
        return float(limit.reset_in_seconds)
    after = headers.get("Retry-After", "").strip()
    try:
        return float(after) if after.isdigit() else _until(after)
    except (ValueError, TypeError):
        return 0.0


def _until(date: str) -> float:
    return (parsedate_to_datetime(date) - datetime.now(UTC)).total_seconds()


def _reason(error: httpx.HTTPError) -> str:
    if isinstance(error, HfHubHTTPError):
        return f"the hub answers {error.response.status_code}"
    return " ".join(str(error).split()) or type(error).__name__
