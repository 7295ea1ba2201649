"""Files of a repository on the hub: their digests there, and which of them make a checkpoint."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ptq_dynamics.base.content import sha256

CONFIG, TOKENIZER = "config.json", "tokenizer_config.json"
INDEX = ".index.json"  # ends the name of the file that says which shard has which weights
SAFE, PICKLED = "model.safetensors", "pytorch_model.bin"

_TOKENIZER = {
    *("tokenizer.json", TOKENIZER, "tokenizer.model", "special_tokens_map.json"),
    *("added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "chat_template.jinja"),
}
_SMALL = {CONFIG, "generation_config.json", *_TOKENIZER}
_SHARD = r"(-\d+-of-\d+)?"
# The names that transformers gives weights; others beside them are adapters, or copies in the
# formats of other tools.
_SAFE = re.compile(rf"model{_SHARD}\.safetensors({re.escape(INDEX)})?")
_CODE = re.compile(r"[A-Za-z_]\w*\.py")
_PICKLED = re.compile(rf"pytorch_model{_SHARD}\.bin({re.escape(INDEX)})?")

COMMIT = re.compile(r"[0-9a-f]{40}")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}|git-sha1:[0-9a-f]{40}")


@dataclass(frozen=True)
class HubFile:
    """A file in the top folder of a repository: `size` in bytes; `digest` is `sha256:HEX` of its
    bytes where it lies in large file storage, else `git-sha1:HEX`, its name in git."""

    name: str
    size: int
    digest: str

    def matches(self, path: Path) -> bool:
        """Whether there are just this file's bytes at `path`."""
        if not path.is_file() or path.stat().st_size != self.size:
            return False
        kind, _, digest = self.digest.partition(":")
        return digest == (sha256(path) if kind == "sha256" else _git_sha1(path, self.size))


def of_checkpoint(files: Iterable[HubFile]) -> tuple[HubFile, ...]:
    """What a checkpoint is made of, by name: configuration, tokenizer and weights, which are
    pickled ones only where there are no others."""
    files = list(files)
    weights = _chosen(files, _SAFE) or _chosen(files, _PICKLED)
    small = [file for file in files if file.name in _SMALL]
    return tuple(sorted((*small, *weights), key=lambda file: file.name))


def of_code(files: Iterable[HubFile]) -> tuple[HubFile, ...]:
    """Python modules, by name."""
    return _chosen(files, _CODE)


def of_tokenizer(files: Iterable[HubFile]) -> tuple[HubFile, ...]:
    """What a tokenizer is made of, by name."""
    return _chosen(files, re.compile("|".join(map(re.escape, _TOKENIZER))))


def _chosen(files: Iterable[HubFile], names: re.Pattern[str]) -> tuple[HubFile, ...]:
    found = (file for file in files if names.fullmatch(file.name))
    return tuple(sorted(found, key=lambda file: file.name))


def is_fetched(name: str) -> bool:
    """Whether files of this name can be part of a checkpoint, or of its code."""
    return name in _SMALL or any(kind.fullmatch(name) for kind in (_SAFE, _PICKLED, _CODE))


def is_pickled(files: Iterable[HubFile]) -> bool:
    """Whether a checkpoint's weights are pickled."""
    return any(_PICKLED.fullmatch(file.name) for file in files)


def has_weights(files: Iterable[HubFile]) -> bool:
    """Whether there are weights in any form."""
    return any(_SAFE.fullmatch(file.name) or _PICKLED.fullmatch(file.name) for file in files)


def stem(weights: str) -> str:
    """What the names of all files with weights of one kind begin with: `SAFE` or `PICKLED`."""
    return weights.partition(".")[0]


def _git_sha1(path: Path, size: int) -> str:
    begun = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    with path.open("rb") as file:
        return hashlib.file_digest(file, begun.copy).hexdigest()
