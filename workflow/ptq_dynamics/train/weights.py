"""Weights of saved checkpoints, read tensor by tensor from the files that they lie in."""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from torch import Tensor

from ptq_dynamics.base.problem import Problem

# Names the files of a checkpoint that has several.
INDEX = "model.safetensors.index.json"
# Weights that are read together, unless one tensor has more: models of many small tensors would
# otherwise take as long to open as to read.
BLOCK = 1 << 20


class Form(NamedTuple):
    """Data type, as safetensors calls it, and shape of a tensor."""

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


class Weights:
    """The tensors in a checkpoint's folder: names by file, and forms by name; none is in memory.

    Raises `Problem` when the folder holds no readable weights.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[str, list[str]] = {}
        self.forms: dict[str, Form] = {}
        try:
            for file in _files(folder):
                with _opened(folder / file) as opened:
                    self.files[file] = list(opened.keys())
                    for name in self.files[file]:
                        part = opened.get_slice(name)
                        self.forms[name] = Form(part.get_dtype(), tuple(part.get_shape()))
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            raise Problem(f"{folder} holds no readable weights ({error}); rebuild it") from error
        if not self.forms:
            raise Problem(f"{folder} holds no weights in *.safetensors; rebuild it")

    def tensors(self, names: Collection[str]) -> dict[str, Tensor]:
        """Some of the tensors, by name."""
        found = dict[str, Tensor]()
        for file, inside in self.files.items():
            if wanted := [name for name in inside if name in names]:
                with _opened(self.folder / file) as opened:
                    found |= {name: opened.get_tensor(name) for name in wanted}
        return found

    def blocks(self, names: Iterable[str]) -> Iterator[list[str]]:
        """Tensors that are read together: as many as have no more than `BLOCK` weights, or one."""
        block, size = list[str](), 0
        for name in names:
            count = prod(self.forms[name].shape)
            if block and size + count > BLOCK:
                yield block
                block, size = [], 0
            block.append(name)
            size += count
        yield block


def require_alike(several: Sequence[Weights]) -> None:
    """Raise `Problem` unless all have tensors of the same names, shapes and data types."""
    *others, last = several
    for other in others:
        for name in sorted(other.forms.keys() ^ last.forms.keys()):
            has, lacks = (other, last) if name in other.forms else (last, other)
            raise Problem(
                f"{lacks.folder} has no tensor {name}, which {has.folder} has; average checkpoints "
                "of one model"
            )
        for name, form in last.forms.items():
            if other.forms[name] != form:
                raise Problem(
                    f"{other.folder} has {name} as {other.forms[name]}, but {last.folder} as "
                    f"{form}; average checkpoints of one model, saved in one data type"
                )


def _files(folder: Path) -> list[str]:
    index = folder / INDEX
    if index.exists():
        named = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        return sorted(set(named))
    return sorted(path.name for path in folder.glob("*.safetensors"))


def _opened(path: Path) -> Any:
    # Not mapped into memory, where all that was read of a file would stay while it is open.
    return safe_open(path, framework="pt", backend="pread")
