"""Files of a repository on the hub: which belong to a checkpoint, and how they are downloaded."""

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from ptq_dynamics.base.checkpoints import CONFIG, INDEX, SAFE
from ptq_dynamics.base.content import sha256
from ptq_dynamics.base.problem import Problem, is_full_disk

TOKENIZER, PICKLED = "tokenizer_config.json", "pytorch_model.bin"
FAST = "tokenizer.json"
SLOW = ("vocab.json", "merges.txt", "vocab.txt", "tokenizer.model")  # of tokenizers without it

_TOKENIZER = re.compile(
    r"(tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab)\.json|tokenizer\.model|"
    r"vocab\.txt|merges\.txt|chat_template\.jinja"
)
_SMALL = re.compile(rf"(generation_)?config\.json|{_TOKENIZER.pattern}")
# Names of weights in transformers; other weights are adapters, or in formats of other tools.
_SAFE = re.compile(r"model(-\d+-of-\d+)?\.safetensors(\.index\.json)?")
_PICKLED = re.compile(r"pytorch_model(-\d+-of-\d+)?\.bin(\.index\.json)?")
_CODE = re.compile(r"\w[\w.-]*\.py")  # of a model with code of its own
_FETCHED = "|".join(pattern.pattern for pattern in (_SMALL, _SAFE, _PICKLED, _CODE))

# All take a file's name; a checkpoint here is one that needs no conversion.
is_of_tokenizer, is_small, is_code = _TOKENIZER.fullmatch, _SMALL.fullmatch, _CODE.fullmatch
is_weights = re.compile(f"{_SAFE.pattern}|{_PICKLED.pattern}").fullmatch
is_of_checkpoint = re.compile(f"{_SMALL.pattern}|{_SAFE.pattern}|{_CODE.pattern}").fullmatch
COMMIT = re.compile(r"^[0-9a-f]{40}$")
Part = Literal["checkpoint", "tokenizer", "code"]  # code: a checkpoint with its code


@dataclass(frozen=True)
class HubFile:
    """A file in the top folder of a repository; `size` in bytes; `digest` is `sha256:HEX` for large
    file storage, else `git-sha1:HEX`."""

    name: Annotated[str, Field(pattern=f"^({_FETCHED})$")]
    size: int
    digest: Annotated[str, Field(pattern=r"^(sha256:[0-9a-f]{64}|git-sha1:[0-9a-f]{40})$")]

    def matches(self, path: Path) -> bool:
        """Return whether `path` has this file's size and digest."""
        if not path.is_file() or path.stat().st_size != self.size:
            return False
        kind, _, digest = self.digest.partition(":")
        if kind == "sha256":
            return digest == sha256(path)
        from huggingface_hub.utils.sha import git_hash

        return digest == git_hash(path.read_bytes())


def choose(part: Part, files: Iterable[HubFile]) -> tuple[HubFile, ...]:
    """Return the files of a part of a repository by name; none if the part is incomplete. Pickled
    weights count only if there are no others."""
    named = {file.name: file for file in sorted(files, key=lambda file: file.name)}
    if part == "tokenizer":
        return tuple(file for name, file in named.items() if _TOKENIZER.fullmatch(name))
    kinds = ((SAFE, _SAFE), (PICKLED, _PICKLED))
    kind = next((pattern for name, pattern in kinds if {name, name + INDEX} & named.keys()), None)
    if kind is None or CONFIG not in named:
        return ()
    chosen = (kind, _SMALL, *[_CODE] * (part == "code"))
    return tuple(named[name] for name in named if any(one.fullmatch(name) for one in chosen))


@dataclass(frozen=True)
class Source:
    """A repository at a revision, and the commit of this revision."""

    repository: str
    revision: str
    commit: str

    def __str__(self) -> str:
        return f"{self.repository}@{self.revision}"


def obtain(
    source: Source, file: HubFile, target: Path, near: Iterable[Path], scratch: Path
) -> None:
    """Put a file with the right digest at `target`: a link to a path in `near` or in the hub's
    cache, else a download through `scratch`, on the file system of `target`. Raises `Problem` if
    this fails."""
    from huggingface_hub import hf_hub_download, try_to_load_from_cache

    place = (source.repository, file.name)
    cached = try_to_load_from_cache(*place, revision=source.commit)
    for path in (*near, *([Path(cached).resolve()] if isinstance(cached, str) else [])):
        if file.matches(path):
            target.unlink(missing_ok=True)
            # Weights are large, and no process writes into either file.
            try:
                os.link(path, target)
            except OSError:
                shutil.copyfile(path, target)  # from another file system
            return
    with explaining(source, file.name):
        # Without force, the library would copy damaged files of its cache.
        downloaded = hf_hub_download(
            *place, revision=source.commit, local_dir=scratch, force_download=True
        )
    if not file.matches(Path(downloaded)):
        raise Problem(
            f"{source}: the downloaded {file.name} differs from its digest {file.digest} at commit "
            f"{source.commit[:12]}; check proxies, and run the command again"
        )
    os.replace(downloaded, target)


@contextmanager
def explaining(source: Source, what: str) -> Iterator[None]:
    """Raise an error of the hub as a `Problem` that states what to do."""
    try:
        yield
    # Proxies and mirrors lead to many types of errors.
    except Exception as error:
        if is_full_disk(error):
            raise
        raise _explained(error, source, what) from error


def _explained(error: Exception, source: Source, what: str) -> Problem:
    from huggingface_hub import constants, errors

    lock = "correct its name in config/families.yaml, then run ptq-dynamics lock"
    status = error.response.status_code if isinstance(error, errors.HfHubHTTPError) else None
    match error:
        case errors.RepositoryNotFoundError() if not isinstance(error, errors.GatedRepoError):
            reason = f"there is no such repository, or it is private; {lock}, or run hf auth login"
        case errors.RevisionNotFoundError():
            reason = f"there is no such revision or commit; {lock}"
        case _ if status in (401, 403):
            page = f"{constants.ENDPOINT}/{source.repository}"
            reason = f"the hub denies access; accept its terms at {page}, then run hf auth login"
        case _:
            message = " ".join(str(error).split()) or type(error).__name__
            reason = (
                f"{what} cannot be downloaded ({message}); check the network, its proxy and "
                "HF_HUB_OFFLINE, and run the same command again"
            )
    return Problem(f"{source}: {reason}")
