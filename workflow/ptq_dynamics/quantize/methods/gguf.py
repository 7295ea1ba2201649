"""Types of GGUF files that the package `gguf` quantizes, in blocks of 32 weights of a row, and
existing files of any type that it reads.

Only weights are rounded, in files those outside of blocks as well. llama.cpp rounds activations as
well, and has further types."""

import re
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from ptq_dynamics.base.content import sha256
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.quantize.methods import Calibration, Quantized, Quantizer
from ptq_dynamics.train.architectures import Architecture

if TYPE_CHECKING:
    from gguf import ReaderTensor

# Largest differences from the checkpoint, relative to the norm of a tensor.
EXACT, IN_FLOATS = 1e-4, 2.0**-8  # of vectors, and of matrices in bfloat16
# Absolute error of a value (root mean square): files have weights of Gemma's norms plus 1.
ADDED = 1e-7


class Gguf(Quantizer):
    """Rounding to a GGUF type."""

    method: Literal["gguf"]
    bits: Literal[4, 5, 8]
    type: Literal["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4"]
    group_size: Literal[32] = 32

    def refuses(self, model: Architecture) -> str | None:
        """Return which width of a model the blocks do not divide, or None."""
        wrong = [width for width in model.widths if width % self.group_size]
        return f"blocks of 32 do not divide the layer width {wrong[0]}" if wrong else None

    def quantize(self, folder: Path, calibration: Calibration) -> Quantized:
        """Quantize the checkpoint in a folder, without the calibration set."""
        import gguf
        import torch

        from ptq_dynamics import models
        from ptq_dynamics.quantize import storage

        model, kind = models.load(folder), gguf.GGMLQuantizationType[self.type]
        weights = dict[str, torch.Tensor]()
        for name, weight in storage.original(folder, model).items():
            blocks = gguf.quantize(weight.float().cpu().numpy(), kind)
            weights[name] = torch.from_numpy(gguf.dequantize(blocks, kind))
        return storage.in_floats(weights, model)


class GgufFile(Quantizer):
    """The weights in a `file` with this digest; `bits` are those of a code, without scales, in the
    most frequent type in blocks."""

    by_layer: ClassVar[bool] = False
    reads: ClassVar[tuple[str, ...]] = ("gguf",)

    method: Literal["gguf-file"]
    bits: int
    file: str
    sha256: str

    @classmethod
    def of(cls, path: Path, file: str) -> Self:
        """Return the entry of a file, named `file` there. Raises `Problem` if it is none."""
        from gguf import GGUFReader

        try:
            counts = Counter[int]()
            for tensor in GGUFReader(path).tensors:
                if (number := _bits(tensor)) and tensor.name.startswith("blk."):
                    counts[number] += int(tensor.n_elements)
            ((bits, _),) = counts.most_common(1)
        except (ValueError, LookupError, OSError) as error:
            raise Problem(f"{path} is no GGUF file ({_line(error)}); convert it again") from error
        return cls(method="gguf-file", bits=bits, file=file, sha256=sha256(path))

    def quantize(self, folder: Path, calibration: Calibration) -> Quantized:
        """Read the file into the model in a folder. Raises `Problem` if it is of another model."""
        import torch
        from gguf import GGUFReader
        from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

        from ptq_dynamics import models

        if not Path(self.file).is_file() or sha256(Path(self.file)) != self.sha256:
            raise Problem(f"{self.file} has changed; run ptq-dynamics measure again")
        model = models.load(folder, torch.float32)
        try:
            content = load_gguf_checkpoint(
                self.file, return_tensors=True, model_to_load=model, torch_dtype=torch.float32
            )
        # Of each architecture other types of errors.
        except Exception as error:
            mend = "measure another type, or with llama.cpp"
            raise Problem(
                f"transformers cannot read {self.file} ({_line(error)}); {mend}"
            ) from error
        tensors, names = content["tensors"], {name for name, _ in model.named_parameters()}
        # With b bits, the largest weight of a block moves by 2**-b of itself, and others move, too.
        fewest = min(filter(None, map(_bits, GGUFReader(self.file).tensors)))
        rounded = max(IN_FLOATS, min(1.0, 3 * 2.0 ** (1 - fewest)))
        known = dict(chain(model.named_parameters(), model.named_buffers()))
        for name in sorted(names | tensors.keys()):
            ours, theirs = known.get(name), tensors.get(name)
            # Files have vectors in full precision, so another step differs there.
            if (
                ours is None
                or theirs is None
                or ours.shape != theirs.shape
                or not (theirs.to(ours.device) - ours).norm()
                <= (EXACT if ours.ndim < 2 else rounded) * ours.norm() + ADDED * ours.numel() ** 0.5
            ):
                mend = "name a file that was converted from it"
                raise Problem(f"{self.file} differs from {folder} in {name}; {mend}")
        model.load_state_dict(tensors, strict=False)
        weights = dict.fromkeys(models.linear_layers(model), torch.empty(0))
        return Quantized(weights, lambda _, target: model.save_pretrained(target))


def _bits(tensor: "ReaderTensor") -> int:
    """Return the number in the name of a tensor's type: the bits of a code; 0 without one."""
    number = re.search(r"\d+", tensor.tensor_type.name)
    return int(number[0]) if number else 0


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
