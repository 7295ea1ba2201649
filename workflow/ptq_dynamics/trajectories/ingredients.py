"""Checks before averages: checkpoints may differ only in the values of their weights."""

import json
import re
from collections.abc import Iterator, Mapping
from filecmp import cmp, cmpfiles
from pathlib import Path

from ptq_dynamics import models
from ptq_dynamics.base.checkpoints import CONFIG
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.hub.files import FAST, SLOW
from ptq_dynamics.trajectories.weights import Weights

# Entries of configurations that change no loss. Types of tensors are compared in their files.
HARMLESS = re.compile(
    r"\w*_version|_name_or_path|architectures|(torch_)?dtype|use_cache|\w+_token_id|\w*dropout|"
    r"\w+_pdrop|initializer_range|return_dict|problem_type|router_aux_loss_coef|"
    # Of learned positions, the shapes tell it.
    r"max_position_embeddings|output_(attentions|hidden_states|router_logits|scores)"
)
SHOWN = 4  # differences that an error names


def require_one_model(one: Weights, other: Weights) -> None:
    """Raise `Problem` if configuration, tokenizer or forms of tensors of two checkpoints differ."""
    for what, names in _differences(one, other):
        if names:
            shown = ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
            raise Problem(
                f"{what.format(f'{one.folder} and {other.folder}')}: {shown}; average "
                "checkpoints of one model (measure: --average 0)"
            )


def _differences(one: Weights, other: Weights) -> Iterator[tuple[str, list[str]]]:
    folders = (one.folder, other.folder)
    if _changed(folders, CONFIG):
        keys = _differing(*map(models.configuration, folders))
        keys = [key for key in keys if not HARMLESS.fullmatch(key.rpartition(".")[2])]
        yield f"{CONFIG} of {{}} differs", keys
    code = {path.name for folder in folders for path in folder.glob("*.py")}
    _, mismatched, lacking = cmpfiles(*folders, code, shallow=False)
    yield "code of {} differs", sorted(mismatched + lacking)
    is_fast = all((folder / FAST).is_file() for folder in folders)
    changed = [name for name in ((FAST,) if is_fast else SLOW) if _changed(folders, name)]
    contents = ({name: content_of(folder / name) for name in changed} for folder in folders)
    yield "tokenizers of {} differ", _differing(*contents)
    yield "tensors of {} differ in name, type or shape", _differing(one.forms(), other.forms())


def _changed(folders: tuple[Path, Path], name: str) -> bool:
    one, other = (folder / name for folder in folders)
    return one.is_file() and other.is_file() and not cmp(one, other, shallow=False)


def _differing(one: Mapping[str, object], other: Mapping[str, object]) -> list[str]:
    keys = sorted(one.keys() | other.keys())
    return [k for k in keys if k not in one or k not in other or one[k] != other[k]]


def content_of(path: Path) -> object:
    """Return the content of a file of a tokenizer, in any format."""
    if path.name != FAST:
        return json.loads(path.read_text()) if path.suffix == ".json" else path.read_bytes()
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    # The library raises no other type.
    except Exception as error:
        raise Problem(f"{path} is no tokenizer ({error}); save it again") from error
    # These are set while a text is tokenized, and saved with the tokenizer.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer.to_str()
