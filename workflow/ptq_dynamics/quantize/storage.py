"""Write quantized checkpoints with packed layers."""

import json
import sys
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
from transformers import PreTrainedModel

from ptq_dynamics import models
from ptq_dynamics.base.checkpoints import CONFIG, weight_files
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.context import Context
from ptq_dynamics.models import packed
from ptq_dynamics.models.packed import COMPRESSED, GPTQ, SCALING, Grid, unscaled_weight
from ptq_dynamics.quantize.methods import Quantized
from ptq_dynamics.trajectories.weights import Weights

INDEX = "model.safetensors.index.json"
# The files of these models use other names for layers of experts than transformers does.
MIXTRAL = ("mixtral", "minimax", "minimax_m2", "phimoe")
NAMES = {"mlp.": "block_sparse_moe.", "gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}


class OnDemand(Mapping[str, Tensor]):
    """Weights by layer, [out, in], each read or dequantized on access to save memory."""

    def __init__(self, layers: Collection[str], weight: Callable[[str], Tensor]) -> None:
        self._layers, self._weight = layers, weight

    def __getitem__(self, name: str) -> Tensor:
        return self._weight(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._layers)

    def __len__(self) -> int:
        return len(self._layers)


def original(folder: Path, model: nn.Module) -> Mapping[str, Tensor]:
    """Return the weights of a checkpoint's linear layers, read from its files on access.
    A model that is spread over devices may not have all weights in memory."""
    files, layers = Weights(folder), models.linear_layers(model)
    kind = packed.read_config(folder)["model_type"]

    def read(name: str) -> Tensor:
        key = _saved(f"{name}.weight", kind, files)
        weight = files.tensors([key])[key].to(models.device())
        return weight.T.contiguous() if hasattr(layers[name], "transposed") else weight

    return OnDemand(layers, read)


def on_grids(
    grids: Mapping[str, Grid], others: Mapping[str, Tensor] = {}, scaling: Mapping[str, Tensor] = {}
) -> Quantized:
    """Return a model with layers on integer grids, `others` as its other changed parameters, and
    `scaling` as `packed.unscaled` needs it."""

    def weight(name: str) -> Tensor:
        rounded = grids[name].weight()
        return unscaled_weight(name, rounded.float(), scaling) if scaling else rounded

    def write(source: Path, target: Path) -> None:
        _write(source, target, grids, others)
        if scaling:
            save_file(_plain(scaling), target / SCALING)

    return Quantized(OnDemand(grids, weight), write)


def in_floats(weights: Mapping[str, Tensor], model: PreTrainedModel) -> Quantized:
    """Return a model with rounded weights by layer, float32 [out, in], saved as they are."""
    layers = models.linear_layers(model)
    saved = {
        f"{name}.weight": value.T if hasattr(layers[name], "transposed") else value
        for name, value in weights.items()
    }
    return Quantized(weights, lambda source, target: _write(source, target, {}, saved))


def groups(bits: int, symmetric: bool, size: int, layers: Iterable[str]) -> dict[str, object]:
    """Return the configuration of compressed-tensors for the integer grid of some layers."""
    weights = {"num_bits": bits, "type": "int", "symmetric": symmetric, "strategy": "group"}
    weights |= {"group_size": size, "observer": "memoryless_minmax"}
    return {"blocks": {"targets": list(layers), "weights": weights}}


@contextmanager
def quietly(context: Context[object]) -> Iterator[None]:
    """Allow models to be spread over devices, and redirect stderr to the job's log."""
    offloading = models.offloading(context.scratch)
    with offloading, redirect_stderr(context.progress.log or sys.stderr):
        yield


def grid_of(name: str, layer: Any, on_grid: Tensor) -> Grid:
    """Return the grid of a layer that llm-compressor quantized, to which it added attributes.
    Raise `Problem` if the grid does not represent the weights `on_grid` exactly."""
    scheme = layer.quantization_scheme.weights
    weight, scales, zeros = layer.weight.data, layer.weight_scale.data, layer.weight_zero_point.data
    codes = quantize(weight, scales, zeros, scheme, torch.int8)
    grid = Grid(scheme.num_bits, codes, scales, None if scheme.symmetric else zeros)
    if not torch.equal(grid.weight(), on_grid):
        raise Problem(f"the weights of {name} are not on the grid that llm-compressor reports")
    return grid


def _write(
    source: Path, target: Path, grids: Mapping[str, Grid], others: Mapping[str, Tensor]
) -> None:
    """Write the weights of a checkpoint with packed layers and other values of some parameters.
    The dtype in its config.json is the widest of its parameters and scales."""
    about, files = packed.read_config(source), Weights(source)
    ordered = all(grid.columns is None for grid in grids.values())
    pack = _compressed_layer if ordered else _gptq_layer
    entries = dict[str, dict[str, Tensor]]()
    for name, value in others.items():
        saved = _saved(name, about["model_type"], files)
        entries[saved] = {saved: value}
    for name, grid in grids.items():
        saved = _saved(f"{name}.weight", about["model_type"], files)
        layer = saved.removesuffix("weight")
        entries[saved] = {layer + key: part for key, part in pack(grid).items()}
    # A large model does not fit in memory, so this loop holds one file at a time.
    places, types = dict[str, str](), {grid.scales.dtype for grid in grids.values()}
    types |= {value.dtype for value in others.values()}
    for file in weight_files(source):
        tensors = load_file(file)
        floating = {name: t.dtype for name, t in tensors.items() if t.is_floating_point()}
        # Buffers of older checkpoints are float32 and do not count.
        types |= {kind for name, kind in floating.items() if name.endswith((".weight", ".bias"))}
        for name in entries.keys() & tensors.keys():
            del tensors[name]
            tensors |= entries.pop(name)
        save_file(_plain(tensors), target / file.name, metadata={"format": "pt"})
        places |= dict.fromkeys(tensors, file.name)
    if (source / INDEX).exists():
        size = sum((target / name).stat().st_size for name in set(places.values()))
        index = {"metadata": {"total_size": size}, "weight_map": places}
        (target / INDEX).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")
    about["dtype"] = str(reduce(torch.promote_types, types)).removeprefix("torch.")
    if grids:
        about["quantization_config"] = _config(next(iter(grids.values())), ordered, grids)
    (target / CONFIG).write_text(json.dumps(about, indent=2, sort_keys=True) + "\n")


def _saved(name: str, model_type: str, files: Weights) -> str:
    """Return the name of a parameter in the files of a checkpoint; `Problem` if they lack it."""
    if model_type in MIXTRAL and ".mlp.experts." in name:
        for ours, theirs in NAMES.items():
            name = name.replace(ours, theirs)
    if saved := files.saved(name):
        return saved
    raise Problem(
        f"{files.folder} has no {name}; its files use other names for layers than transformers "
        "does, so it cannot be quantized; leave it out"
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


def _gptq_layer(grid: Grid) -> dict[str, Tensor]:
    zeros = torch.zeros_like(grid.scales, dtype=torch.int8) if grid.zeros is None else grid.zeros
    # Scales of GPTQModel are float16 values.
    halves = grid.scales.half()
    scales = halves if torch.equal(halves.to(grid.scales), grid.scales) else grid.scales
    return {
        "qweight": pack_to_int32(grid.codes, grid.bits).T,
        "qzeros": pack_to_int32(zeros, grid.bits, packed_dim=0).T,
        "scales": scales.T,
        "g_idx": grid.groups(),
    }


def _config(grid: Grid, ordered: bool, layers: Iterable[str]) -> dict[str, object]:
    symmetric = grid.zeros is None
    if ordered:
        return {
            "quant_method": COMPRESSED,
            "format": "pack-quantized",
            "quantization_status": "compressed",
            "config_groups": groups(grid.bits, symmetric, grid.group_size, layers),
        }
    form = {"quant_method": GPTQ, "checkpoint_format": "gptq_v2", "pack_dtype": "int32"}
    sizes = {"bits": grid.bits, "group_size": grid.group_size}
    return {**form, **sizes, "desc_act": True, "sym": symmetric, "lm_head": False}
