"""Files of a repository on the hub: their digests there, and which of them make a checkpoint."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from ptq_dynamics.base.content import sha256

CONFIG, TOKENIZER = "config.json", "tokenizer_config.json"
INDEX = ".index.json"  # ends the name of the file that says which shard has which weights
SAFE, PICKLED = "model.safetensors", "pytorch_model.bin"

_TOKENIZER = re.compile(
    r"(tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab)\.json|tokenizer\.model|"
    r"vocab\.txt|merges\.txt|chat_template\.jinja"
)
_SMALL = re.compile(rf"(generation_)?config\.json|{_TOKENIZER.pattern}")
# The names that transformers gives weights; others beside them are adapters, or copies in the
# formats of other tools.
_SAFE = re.compile(r"model(-\d+-of-\d+)?\.safetensors(\.index\.json)?")
_PICKLED = re.compile(r"pytorch_model(-\d+-of-\d+)?\.bin(\.index\.json)?")
_FETCHED = "|".join(each.pattern for each in (_SMALL, _SAFE, _PICKLED))

COMMIT = re.compile(r"^[0-9a-f]{40}$")
Part = Literal["checkpoint", "tokenizer"]


@dataclass(frozen=True)
class HubFile:
    """A file in the top folder of a repository: `size` in bytes; `digest` is `sha256:HEX` of its
    bytes where it lies in large file storage, else `git-sha1:HEX`, its name in git."""

    name: Annotated[str, Field(pattern=f"^({_FETCHED})$")]
    size: int
    digest: Annotated[str, Field(pattern=r"^(sha256:[0-9a-f]{64}|git-sha1:[0-9a-f]{40})$")]

    def matches(self, path: Path) -> bool:
        """Whether there are just this file's bytes at `path`."""
        if not path.is_file() or path.stat().st_size != self.size:
            return False
        kind, _, digest = self.digest.partition(":")
        if kind == "sha256":
            return digest == sha256(path)
        begun = hashlib.sha1(b"blob %d\0" % self.size, usedforsecurity=False)
        with path.open("rb") as file:
            return digest == hashlib.file_digest(file, begun.copy).hexdigest()


def choose(part: Part, files: Iterable[HubFile]) -> tuple[HubFile, ...]:
    """What a part of a repository is made of, by name; a checkpoint of configuration, tokenizer and
    weights, which are pickled ones only where there are no others. Empty where it is not whole."""
    found = {file.name: file for file in sorted(files, key=lambda file: file.name)}
    if part == "tokenizer":
        return tuple(file for name, file in found.items() if _TOKENIZER.fullmatch(name))
    weights = list(filter(_SAFE.fullmatch, found)) or list(filter(_PICKLED.fullmatch, found))
    if not weights or CONFIG not in found:
        return ()
    return tuple(found[name] for name in found if name in weights or _SMALL.fullmatch(name))
