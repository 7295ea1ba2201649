"""Weights that are published only as pickles, or under other names, saved as safetensors that
transformers reads.

A pickle can run any code as it is read; these are read by torch's own reader of plain tensors, one
file at a time, and anything else in them is refused.
"""

import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ptq_dynamics.base.problem import Problem


def safe_name(name: str) -> str:
    """The name as safetensors of a file of pickled weights, or of their index."""
    return name.replace("pytorch_model", "model", 1).replace(".bin", ".safetensors", 1)


def safe_index(content: str, renamed: Callable[[str], Sequence[str]]) -> str:
    """An index of weights as one of the files that they are saved as, under the names that become
    of theirs."""
    index = json.loads(content)
    places = index["weight_map"].items()
    index["weight_map"] = {new: safe_name(name) for key, name in places for new in renamed(key)}
    return json.dumps(index, indent=2, sort_keys=True) + "\n"


def save_safely(source: Path, target: Path, parts: Callable[[str, Any], Mapping[str, Any]]) -> None:
    """Save weights as safetensors, to the bit, `parts` of each tensor by name.

    Raises `Problem` when `source` holds anything else than tensors.
    """
    import torch
    from safetensors.torch import load_file, save_file

    try:
        if source.suffix == ".safetensors":
            state: Any = load_file(source)
        else:
            options: Any = {"map_location": "cpu", "mmap": zipfile.is_zipfile(source)}
            state = torch.load(source, weights_only=True, **options)
        if not all(isinstance(value, torch.Tensor) for value in state.values()):
            raise ValueError("a value is no tensor")
    # Damaged files, and those of other content, make the libraries raise all kinds.
    except Exception as error:
        raise Problem(
            f"{source.name} is damaged, or holds more than a state dict of plain tensors "
            f"({type(error).__name__}); leave the revision out of the family"
        ) from error
    split = {new: part for name, value in state.items() for new, part in parts(name, value).items()}
    # Tied weights are one tensor under two names, which the format does not have.
    plain = {name: value.contiguous().clone() for name, value in split.items()}
    save_file(plain, target, metadata={"format": "pt"})
