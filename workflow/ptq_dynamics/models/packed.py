"""Integer weights on a grid, and how checkpoint folders hold them packed.

Formats: `pack-quantized` of compressed-tensors, and `gptq` of GPTQModel for groups in activation
order, both little-endian streams of bits in int32 words with 2**(bits-1) added."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
from safetensors.torch import load_file
from torch import Tensor

CONFIG = "config.json"
COMPRESSED, GPTQ = "compressed-tensors", "gptq"
# Of a rescaled model: LAYER.rows and LAYER.columns are what a layer's weights had been multiplied
# by, other entries are parameters as they were before.
SCALING = "scaling.safetensors"


@dataclass(frozen=True)
class Grid:
    """A layer's weights as scale[o, g] * (code[o, i] - zero[o, g]), g the group of column i.

    codes: int8 [out, in], from -2**(bits-1) on. scales: floating point [out, groups], in the dtype
    of the weights. zeros: int8 [out, groups], or None where all are 0. columns: int32 [in], the
    group of every column, or None where groups are of neighbours.
    """

    bits: int
    codes: Tensor
    scales: Tensor
    zeros: Tensor | None = None
    columns: Tensor | None = None

    @property
    def group_size(self) -> int:
        """Columns in a group."""
        return self.codes.shape[1] // self.scales.shape[1]

    def groups(self) -> Tensor:
        """Group of every column, int32 [in]."""
        if self.columns is not None:
            return self.columns
        columns = torch.arange(self.codes.shape[1], dtype=torch.int32, device=self.codes.device)
        return columns // self.group_size

    def steps(self) -> Tensor:
        """Codes less their zero points, int16 [out, in]."""
        codes = self.codes.short()
        if self.zeros is None:
            return codes
        return codes - self.zeros[:, self.groups().long()].short()

    def weight(self) -> Tensor:
        """The weights, [out, in] in the dtype of the scales."""
        return self.steps().to(self.scales.dtype).mul_(self.scales[:, self.groups().long()])


def quantization(folder: Path) -> dict[str, Any]:
    """How the checkpoint in `folder` is quantized, as its config.json says; empty if it is not."""
    content = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    found: dict[str, Any] = content.get("quantization_config", {})
    return found


def grids(folder: Path) -> dict[str, Grid]:
    """The packed layers of the checkpoint in `folder`, by module path."""
    return _split(folder)[0]


def state(folder: Path) -> dict[str, Tensor]:
    """State dict of a packed checkpoint, its weights unpacked, under their names on disk."""
    layers, others = _split(folder)
    return others | {f"{name}.weight": grid.weight() for name, grid in layers.items()}


def unscaled(folder: Path, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state dict of the checkpoint in `folder` with the scaling taken back, if it had one."""
    path = folder / SCALING
    scaling = load_file(path) if path.exists() else {}
    found = {
        name: unscaled_weight(name.removesuffix(".weight"), value, scaling)
        for name, value in state.items()
    }
    return found | {name: scaling[name] for name in scaling.keys() & state.keys()}


def unscaled_weight(layer: str, weight: Tensor, scaling: Mapping[str, Tensor]) -> Tensor:
    """The weights of a layer, [out, in], with its scaling taken back, if it had one."""
    if (rows := scaling.get(f"{layer}.rows")) is not None:
        weight = weight / rows[:, None]
    columns = scaling.get(f"{layer}.columns")
    return weight if columns is None else weight / columns


def _split(folder: Path) -> tuple[dict[str, Grid], dict[str, Tensor]]:
    about = quantization(folder)
    tensors: dict[str, Tensor] = {}
    for file in sorted(folder.glob("model*.safetensors")):
        tensors |= load_file(file)
    method = about["quant_method"]
    suffix = {COMPRESSED: ".weight_packed", GPTQ: ".qweight"}[method]
    layers = dict[str, Grid]()
    for name in [key.removesuffix(suffix) for key in tensors if key.endswith(suffix)]:
        if method == COMPRESSED:
            (group,) = about["config_groups"].values()
            layers[name] = _compressed(name, tensors, group["weights"]["num_bits"])
        else:
            layers[name] = gptq(name, tensors, about["bits"])
    return layers, tensors


def _compressed(name: str, tensors: dict[str, Tensor], bits: int) -> Grid:
    shape = torch.Size(tensors.pop(f"{name}.weight_shape").tolist())
    codes = unpack_from_int32(tensors.pop(f"{name}.weight_packed"), bits, shape)
    scales = tensors.pop(f"{name}.weight_scale")
    zeros = tensors.pop(f"{name}.weight_zero_point", None)
    if zeros is not None:
        zeros = unpack_from_int32(zeros, bits, scales.shape, packed_dim=0)
    return Grid(bits, codes, scales, zeros)


def gptq(name: str, tensors: dict[str, Tensor], bits: int) -> Grid:
    """A layer as GPTQModel packs it, whose entries are taken out of `tensors`."""
    columns, scales = tensors.pop(f"{name}.g_idx"), tensors.pop(f"{name}.scales").T.float()
    shape = torch.Size([len(scales), len(columns)])
    codes = unpack_from_int32(tensors.pop(f"{name}.qweight").T, bits, shape)
    zeros = unpack_from_int32(tensors.pop(f"{name}.qzeros").T, bits, scales.shape, packed_dim=0)
    grid = Grid(bits, codes, scales, zeros if zeros.any() else None)
    return grid if torch.equal(columns, grid.groups()) else replace(grid, columns=columns)
