"""Integer weights on a grid, and their packed formats in checkpoint folders.

The formats are `pack-quantized` of compressed-tensors, and `gptq` of GPTQModel for groups in
activation order. Both are little-endian streams of bits in int32 words with 2**(bits-1) added."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
from safetensors.torch import load_file
from torch import Tensor

from ptq_dynamics.base.checkpoints import CONFIG, weight_files

Json = dict[str, Any]  # as libraries write it, checked where it is read
COMPRESSED, GPTQ = "compressed-tensors", "gptq"
# File of a rescaled model: factors of each layer's weights (LAYER.rows and LAYER.columns), and
# other parameters before the scaling.
SCALING = "scaling.safetensors"


@dataclass(frozen=True)
class Grid:
    """A layer's weights as scale[o, g] * (code[o, i] - zero[o, g]), g the group of column i."""

    bits: int
    codes: Tensor  # int8 [out, in], at least -2**(bits-1)
    scales: Tensor  # floating point [out, groups], in the dtype of the weights
    zeros: Tensor | None = None  # int8 [out, groups], or None if all are 0
    columns: Tensor | None = None  # int32 [in], each column's group, or None if in order

    @property
    def group_size(self) -> int:
        """Number of columns in a group."""
        return self.codes.shape[1] // self.scales.shape[1]

    def groups(self) -> Tensor:
        """Return the group of each column, int32 [in]."""
        if self.columns is not None:
            return self.columns
        columns = torch.arange(self.codes.shape[1], dtype=torch.int32, device=self.codes.device)
        return columns // self.group_size

    def steps(self) -> Tensor:
        """Return the codes minus their zero points, int16 [out, in]."""
        codes = self.codes.short()
        if self.zeros is None:
            return codes
        return codes - self.zeros[:, self.groups().long()].short()

    def weight(self) -> Tensor:
        """Return the weights, [out, in], in the dtype of the scales."""
        return self.steps().to(self.scales.dtype).mul_(self.scales[:, self.groups().long()])


def read_config(folder: Path) -> Json:
    """Read the config.json of the checkpoint in `folder`."""
    return json.loads((folder / CONFIG).read_text(encoding="utf-8"))


def is_on_grids(about: Json) -> bool:
    """Return whether a configuration of compressed-tensors is that of integer weights alone."""
    kinds = about["config_groups"].values()
    rounded = any(kind.get("input_activations") for kind in kinds)
    return about["format"] == "pack-quantized" and not rounded and not about.get("transform_config")


def grids(folder: Path) -> dict[str, Grid]:
    """Read the packed layers of the checkpoint in `folder`, by module path."""
    return _split(folder)[0]


def unpacked_state(folder: Path) -> dict[str, Tensor]:
    """Read the state dict of a packed checkpoint, with unpacked weights."""
    layers, others = _split(folder)
    return others | {f"{name}.weight": grid.weight() for name, grid in layers.items()}


def unscaled(folder: Path, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a state dict without the scaling of the checkpoint in `folder`, if it has one."""
    path = folder / SCALING
    scaling = load_file(path) if path.exists() else {}
    plain = {
        name: unscaled_weight(name.removesuffix(".weight"), value, scaling)
        for name, value in state.items()
    }
    return plain | {name: scaling[name] for name in scaling.keys() & state.keys()}


def unscaled_weight(layer: str, weight: Tensor, scaling: Mapping[str, Tensor]) -> Tensor:
    """Return the weights of a layer, [out, in], without its scaling, if it has one."""
    if (rows := scaling.get(f"{layer}.rows")) is not None:
        weight = weight / rows[:, None]
    columns = scaling.get(f"{layer}.columns")
    return weight if columns is None else weight / columns


def _split(folder: Path) -> tuple[dict[str, Grid], dict[str, Tensor]]:
    about = read_config(folder)["quantization_config"]
    tensors: dict[str, Tensor] = {}
    for file in weight_files(folder):
        tensors |= load_file(file)
    if about["quant_method"] == GPTQ:
        return gptq(tensors, about["bits"]), tensors
    (group,) = about["config_groups"].values()
    bits = group["weights"]["num_bits"]
    return {n: _compressed(n, tensors, bits) for n in _with(tensors, ".weight_packed")}, tensors


def _with(tensors: Iterable[str], suffix: str) -> list[str]:
    return [key.removesuffix(suffix) for key in tensors if key.endswith(suffix)]


def _compressed(name: str, tensors: dict[str, Tensor], bits: int) -> Grid:
    shape = torch.Size(tensors.pop(f"{name}.weight_shape").tolist())
    codes = unpack_from_int32(tensors.pop(f"{name}.weight_packed"), bits, shape)
    scales = tensors.pop(f"{name}.weight_scale")
    zeros = tensors.pop(f"{name}.weight_zero_point", None)
    if zeros is not None:
        zeros = unpack_from_int32(zeros, bits, scales.shape, packed_dim=0)
    return Grid(bits, codes, scales, zeros)


def gptq(tensors: dict[str, Tensor], bits: int, less: int = 0) -> dict[str, Grid]:
    """Return the layers in the format of GPTQModel, and remove their entries from `tensors`.
    AutoGPTQ packs each zero point minus 1, so `less` is 1."""
    return {name: _gptq(name, tensors, bits, less) for name in _with(tensors, ".qweight")}


def _gptq(name: str, tensors: dict[str, Tensor], bits: int, less: int) -> Grid:
    columns, scales = tensors.pop(f"{name}.g_idx"), tensors.pop(f"{name}.scales").T.float()
    shape = torch.Size([len(scales), len(columns)])
    codes = unpack_from_int32(tensors.pop(f"{name}.qweight").T, bits, shape)
    zeros = unpack_from_int32(tensors.pop(f"{name}.qzeros").T, bits, scales.shape, packed_dim=0)
    zeros += less
    grid = Grid(bits, codes, scales, zeros if zeros.any() else None)
    return grid if torch.equal(columns, grid.groups()) else replace(grid, columns=columns)
