"""Quantized checkpoints, and folders that hold each layer in as many bits as it has."""

import json
import shutil
import sys
from collections import UserDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from functools import reduce
from pathlib import Path
from typing import Any

import torch
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
from compressed_tensors.quantization import quantize
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ptq_dynamics import models
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.context import Context
from ptq_dynamics.models.packed import COMPRESSED, CONFIG, GPTQ, SCALING, Grid, unscaled_weight
from ptq_dynamics.quantize.methods import Quantized
from ptq_dynamics.train.weights import Weights

INDEX = "model.safetensors.index.json"
# Files of these models name the layers of experts otherwise than transformers does.
MIXTRAL = ("mixtral", "minimax", "minimax_m2")
NAMES = {"mlp.": "block_sparse_moe.", "gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}


class OnDemand(UserDict[str, Any]):
    """Weights by layer, [out, in], read or dequantized when they are asked for: all at once would
    be a second model in memory."""

    def __init__(self, layers: Mapping[str, Any], make: Callable[[Any], Tensor]) -> None:
        super().__init__(layers)
        self._make = make

    def __getitem__(self, name: str) -> Tensor:
        return self._make(self.data[name])


def original(folder: Path, model: nn.Module) -> Mapping[str, Tensor]:
    """The weights of a checkpoint's quantized layers on `models.device()`, from its files: where a
    model is spread, not all that it has are in memory."""
    files, layers, saved = Weights(folder), models.linear_layers(model), _names(folder)

    def read(name: str) -> Tensor:
        key = saved(f"{name}.weight")
        try:
            weight = files.tensors([key])[key].to(models.device())
        except KeyError:
            raise _unknown(folder, name) from None
        return weight.T.contiguous() if hasattr(layers[name], "transposed") else weight

    return OnDemand({name: name for name in layers}, read)


def on_grids(
    grids: Mapping[str, Grid],
    others: Mapping[str, Tensor] | None = None,
    scaling: Mapping[str, Tensor] | None = None,
) -> Quantized:
    """A model with layers on integer grids. `others` are parameters that were changed with them;
    `scaling` is what `packed.unscaled` needs to take that back. Where groups are not of
    neighbouring columns, it is saved as GPTQ's own."""

    def weight(name: str) -> Tensor:
        found = grids[name].weight()
        return unscaled_weight(name, found.float(), scaling) if scaling else found

    def save(source: Path, target: Path) -> None:
        one = next(iter(grids.values()))
        ordered = all(grid.columns is None for grid in grids.values())
        about = _compressed_config(one, list(grids)) if ordered else _gptq_config(one)
        entries = _compressed_layer if ordered else _gptq_layer
        layers = {name: entries(grid) for name, grid in grids.items()}
        replace(source, target, layers, about, others, {g.scales.dtype for g in grids.values()})
        if scaling:
            save_file(_plain(scaling), target / SCALING)

    return Quantized(OnDemand({name: name for name in grids}, weight), save)


def groups(bits: int, symmetric: bool, size: int, layers: Iterable[str]) -> dict[str, Any]:
    """An integer grid for the weights of some layers in the words of compressed-tensors; the scale
    is from the smallest and largest weight of a group."""
    weights = {"num_bits": bits, "type": "int", "symmetric": symmetric, "strategy": "group"}
    weights |= {"group_size": size, "observer": "memoryless_minmax"}
    return {"blocks": {"targets": list(layers), "weights": weights}}


@contextmanager
def quietly(context: Context[Any]) -> Iterator[None]:
    """Models may be spread meanwhile, and what libraries print (bars) goes to the job's log."""
    offloading = models.offloading(context.scratch, context.device_map)
    with offloading, redirect_stderr(context.progress.log or sys.stderr):
        yield


def outside_blocks(folder: Path) -> list[str]:
    """Linear layers of a checkpoint's model that are in no transformer block, such as its head."""
    model = models.without_weights(folder)
    linear = {name for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    return sorted(linear - models.linear_layers(model).keys())


def grid_of(layer: Any) -> Grid:
    """The grid that llm-compressor has put a layer on, and where its weights lie there."""
    scheme = layer.quantization_scheme.weights
    parts = (layer.weight, layer.weight_scale, layer.weight_zero_point)
    weight, scales, zeros = (part.detach() for part in parts)
    codes = quantize(weight, scales, zeros, scheme, torch.int8)
    return Grid(scheme.num_bits, codes, scales, None if scheme.symmetric else zeros)


def exact(layer: str, grid: Grid, weight: Tensor) -> Grid:
    """The grid; `Problem` when it does not hold a layer's weights to the bit."""
    if not torch.equal(grid.weight(), weight):
        raise Problem(f"the weights of {layer} are not on the grid that their library names")
    return grid


def replace(
    source: Path,
    target: Path,
    layers: Mapping[str, Mapping[str, Tensor]],
    about: Mapping[str, Any],
    others: Mapping[str, Tensor] | None = None,
    dtypes: Collection[torch.dtype] = (),
) -> None:
    """Copy a checkpoint with other entries, by the last part of their names, in place of the
    weights of some layers, other values of some parameters, and `about` as quantization_config. It
    is loaded in the widest of its dtypes, and those of its unpacked layers."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.safetensors*"))
    saved = _names(source)
    entries = {
        saved(f"{name}.weight"): {saved(f"{name}.{part}"): each for part, each in parts.items()}
        for name, parts in layers.items()
    }
    entries |= {name: {name: value} for name, value in (others or {}).items()}
    # File by file, so that a large model is never in memory as a whole.
    places, found = dict[str, str](), {*dtypes}
    for file in sorted(source.glob("model*.safetensors")):
        tensors = load_file(file)
        floating = {name: each.dtype for name, each in tensors.items() if each.is_floating_point()}
        # Buffers of older checkpoints are in float32.
        found |= {each for name, each in floating.items() if name.endswith((".weight", ".bias"))}
        for name in entries.keys() & tensors.keys():
            del tensors[name]
            tensors |= entries.pop(name)
        save_file(_plain(tensors), target / file.name, metadata={"format": "pt"})
        places |= dict.fromkeys(tensors, file.name)
    if entries:
        raise _unknown(source, min(entries))
    if (source / INDEX).exists():
        size = sum((target / name).stat().st_size for name in set(places.values()))
        index = {"metadata": {"total_size": size}, "weight_map": places}
        (target / INDEX).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")
    config = json.loads((source / CONFIG).read_text(encoding="utf-8"))
    config["dtype"] = str(reduce(torch.promote_types, found)).removeprefix("torch.")
    config["quantization_config"] = about
    (target / CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def _names(folder: Path) -> Callable[[str], str]:
    """What names the parts of layers as the files of a checkpoint do."""
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    names = NAMES if config["model_type"] in MIXTRAL else {}

    def saved(name: str) -> str:
        is_expert = ".mlp.experts." in name
        return reduce(
            lambda found, pair: found.replace(*pair), names.items() if is_expert else (), name
        )

    return saved


def _unknown(folder: Path, name: str) -> Problem:
    return Problem(
        f"{folder} has no {name}; its files name layers otherwise than transformers does, so that "
        "they cannot be quantized here"
    )


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().cpu().contiguous() for name, value in tensors.items()}


def _compressed_layer(grid: Grid) -> dict[str, Tensor]:
    parts = {
        "weight_packed": pack_to_int32(grid.codes, grid.bits),
        "weight_scale": grid.scales,
        "weight_shape": torch.tensor(grid.codes.shape),
    }
    if grid.zeros is not None:
        parts["weight_zero_point"] = pack_to_int32(grid.zeros, grid.bits, packed_dim=0)
    return parts


def _compressed_config(grid: Grid, layers: list[str]) -> dict[str, Any]:
    return {
        "quant_method": COMPRESSED,
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "config_groups": groups(grid.bits, grid.zeros is None, grid.group_size, layers),
    }


def _gptq_layer(grid: Grid) -> dict[str, Tensor]:
    # Two's complement makes the words of both formats the same.
    zeros = torch.zeros_like(grid.scales, dtype=torch.int8) if grid.zeros is None else grid.zeros
    # GPTQModel's scales are float16, whatever the dtype they are kept in.
    halves = grid.scales.half()
    scales = halves if torch.equal(halves.to(grid.scales), grid.scales) else grid.scales
    return {
        "qweight": pack_to_int32(grid.codes, grid.bits).T,
        "qzeros": pack_to_int32(zeros, grid.bits, packed_dim=0).T,
        "scales": scales.T,
        "g_idx": grid.groups(),
    }


def _gptq_config(grid: Grid) -> dict[str, Any]:
    return {
        "quant_method": GPTQ,
        "checkpoint_format": "gptq_v2",
        "bits": grid.bits,
        "group_size": grid.group_size,
        "desc_act": True,
        "sym": grid.zeros is None,
        "lm_head": False,
        "pack_dtype": "int32",
    }
