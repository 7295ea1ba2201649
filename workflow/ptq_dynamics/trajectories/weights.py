"""Weights of saved checkpoints, read tensor by tensor."""

from collections.abc import Iterable
from pathlib import Path

from safetensors import safe_open
from torch import Tensor

from ptq_dynamics.base.checkpoints import require_plain, weight_files


class Weights:
    """The tensors of a checkpoint, read on request; `files` lists names of tensors by file.
    Raises `Problem` if they are quantized."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[str, list[str]] = {}
        self._homes: dict[str, safe_open] = {}
        for path in weight_files(folder):
            # A memory-mapped file would stay in memory once it is read.
            opened = safe_open(path, framework="pt", backend="pread")
            self.files[path.name] = list(opened.keys())
            self._homes |= dict.fromkeys(self.files[path.name], opened)
        require_plain(folder, folder, self.forms())

    def saved(self, name: str) -> str | None:
        """Return the name of a parameter in the files, or None if they lack it. Files of a model
        that was saved without its head have names without the first part."""
        return next((n for n in (name, name.partition(".")[2]) if n in self._homes), None)

    def tensors(self, names: Iterable[str]) -> dict[str, Tensor]:
        """Return the tensors with these names, without missing ones."""
        saved = {name: self.saved(name) for name in names}
        return {name: self._homes[n].get_tensor(n) for name, n in saved.items() if n}

    def rows(self, name: str, start: int, stop: int) -> Tensor:
        """Return the rows `start` to `stop` of a tensor."""
        return self._homes[name].get_slice(name)[start:stop]

    def forms(self) -> dict[str, tuple[str, list[int]]]:
        """Return data type (as named by safetensors) and shape of every tensor."""
        parts = {name: home.get_slice(name) for name, home in self._homes.items()}
        return {name: (part.get_dtype(), part.get_shape()) for name, part in parts.items()}
