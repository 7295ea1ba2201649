"""Weights that are published only as pickles, or under other names, saved as safetensors that
transformers reads.

A pickle can run any code as it is read; these are read by torch's own reader of plain tensors, one
file at a time, and anything else in them is refused.
"""

import json
import os
import pickle
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.hub.files import PICKLED, SAFE, stem

if TYPE_CHECKING:
    from torch import Tensor

_MEND = "leave the revision out of the family"


def safe_name(name: str) -> str:
    """The name as safetensors of a file of pickled weights, or of their index."""
    return name.replace(stem(PICKLED), stem(SAFE), 1).replace(".bin", ".safetensors", 1)


def safe_index(content: str, renamed: Callable[[str], Sequence[str]]) -> str:
    """An index of weights as one of the files that they are saved as, under the names that become
    of theirs."""
    index = json.loads(content)
    places = index["weight_map"].items()
    index["weight_map"] = {new: safe_name(name) for key, name in places for new in renamed(key)}
    return json.dumps(index, indent=2, sort_keys=True) + "\n"


def save_safely(
    source: Path,
    target: Path,
    partial: Path,
    parts: Callable[[str, "Tensor"], Mapping[str, "Tensor"]],
) -> None:
    """Save weights as safetensors, to the bit, `parts` of each by name; `target` is there when it
    is whole.

    Raises `Problem` when `source` holds anything else than tensors.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file, save_file

    try:
        state = load_file(source) if source.suffix == ".safetensors" else _unpickled(source)
    except SafetensorError as error:
        raise Problem(f"{source.name} is no file of safetensors ({error}); {_MEND}") from None
    split = {new: part for name, value in state.items() for new, part in parts(name, value).items()}
    # Tied weights are one tensor under two names, which the format does not have.
    plain = {name: value.contiguous().clone() for name, value in split.items()}
    save_file(plain, partial, metadata={"format": "pt"})
    os.replace(partial, target)


def _unpickled(source: Path) -> dict[str, "Tensor"]:
    import torch

    try:
        state = torch.load(
            source, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(source)
        )
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise Problem(f"{source.name} holds more than plain tensors, or is damaged; {_MEND}") from (
            error
        )
    if not isinstance(state, dict) or not all(isinstance(v, torch.Tensor) for v in state.values()):
        raise Problem(f"{source.name} is no state dict of plain tensors; {_MEND}")
    return state
