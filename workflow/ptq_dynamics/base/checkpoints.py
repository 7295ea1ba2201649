"""Files of a checkpoint: those with its weights, and those that show quantized weights."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ptq_dynamics.base.problem import Problem

if TYPE_CHECKING:
    from huggingface_hub.utils import SafetensorsRepoMetadata

CONFIG = "config.json"
SAFE = "model.safetensors"
INDEX = ".index.json"  # suffix of the file that maps weights to shards
# Entries of config.json, and other files with their tools, that describe quantized weights.
QUANTIZED = ("quantization_config", "compression_config", "quantization")
BESIDE = {
    "quantize_config.json": "GPTQ",
    "quant_config.json": "AWQ",
    "hf_quant_config.json": "ModelOpt",
}
ADAPTER = "adapter_config.json"  # transformers adds its weights where peft is installed
# Types of integers and of floating-point codes in safetensors.
WHOLE, CODES = re.compile(r"[IU]\d+"), re.compile(r"F[468](_\w+)?")
# Masks and positions, which are integers in older checkpoints.
BUFFER = re.compile(r"(bias|mask|ids|positions?|num_batches_tracked)$")
# Routers of mixtures, which stay in full precision, and their gates of shared experts.
ROUTER = re.compile(r"\.(gate|gate\.wg|router|shared_expert_gate)(\.weight)?$|\.router\.")
# Mamba multiplies by this weight without calling the layer, so no method sees its inputs.
UNCALLED = re.compile(r"\.dt_proj(\.weight)?$")
Forms = Mapping[str, tuple[str, Sequence[int]]]  # type in safetensors, and shape, by tensor
NONE: Forms = {}


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors that transformers reads: model.safetensors, or else the files of the
    index. Raises `Problem` if one is missing or lies in another folder."""
    index, names = folder / (SAFE + INDEX), [SAFE]
    if not (folder / SAFE).is_file() and index.is_file():
        try:
            places = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
            names = sorted({str(Path(str(place))) for place in places}) or names
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise Problem(f"{index} is no index ({reason}); save the model again") from None
    for name in names:
        if Path(name).name != name:
            why = f"names {name!r}, which is not a file beside it by its name"
            raise Problem(f"{index} {why}; save the model again")
        if not (folder / name).is_file():
            raise Problem(f"{folder} lacks {name}; save the whole model with save_pretrained")
    return [folder / name for name in names]


def forms(metadata: "SafetensorsRepoMetadata") -> Forms:
    """Return type and shape of every tensor, from the metadata that huggingface_hub reads."""
    parts = metadata.files_metadata.values()
    return {name: (t.dtype, t.shape) for part in parts for name, t in part.tensors.items()}


def require_plain(place: object, folder: Path, tensors: Forms = NONE) -> None:
    """Raise `Problem` if the files in a folder, or types of tensors, show that the weights of the
    checkpoint `place` are quantized already."""
    path = folder / CONFIG
    config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    # A model of text and images has a part for text.
    for part in (config, config.get("text_config") or {}):
        for about in filter(None, map(part.get, QUANTIZED)):
            raise _quantized(place, f"{CONFIG}, method {_method(about)}")
        if name := part.get("transformers_weights"):
            raise Problem(f"{place}: {CONFIG} names {name} as weights; save the model again")
    require_plain_names(place, (path.name for path in folder.iterdir()))
    for name, (dtype, shape) in tensors.items():
        is_code = WHOLE.fullmatch(dtype) and len(shape) > 1 and not BUFFER.search(name)
        if is_code or CODES.fullmatch(dtype):
            raise _quantized(place, f"none, but {name} has the type {dtype}")


def require_plain_names(place: object, names: Iterable[str]) -> None:
    """Raise `Problem` if one of the files of a checkpoint describes quantized weights, or an
    adapter."""
    if ADAPTER in (every := {*names}):
        raise Problem(f"{place} has an adapter ({ADAPTER}); merge it, or remove what is left of it")
    for name in sorted(BESIDE.keys() & every):
        raise _quantized(place, f"{name}, method {BESIDE[name]}")


def _method(about: object) -> str:
    keys = ("quant_method", "quant_algo", "format")
    known = (about.get(key) for key in keys) if isinstance(about, Mapping) else ()
    return str(next(filter(None, known), "unknown"))


def _quantized(place: object, about: str) -> Problem:
    mend = "name the checkpoint before quantization, or remove what is left over of another one"
    return Problem(f"{place} is quantized already (quantization_config: {about}); {mend}")
