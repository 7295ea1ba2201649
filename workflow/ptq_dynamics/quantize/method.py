"""The part of a quantization job that is the same for every method.

A method takes checkpoint folders of one shape and yields, checkpoint by checkpoint, the dequantized
weights of the layers it quantized. The job saves each as a checkpoint folder that any Hugging Face
tool can load, and the error of every layer.
"""

import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

import pandas as pd
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel

from ptq_dynamics import models
from ptq_dynamics.corpus import tokens
from ptq_dynamics.jobs.context import Context
from ptq_dynamics.quantize.layers import check_groups, gram_matrices, layer_errors
from ptq_dynamics.trajectories import trajectory

LAYERS = "layers.csv"


@dataclass(frozen=True)
class Quantized:
    """One quantized checkpoint: the dequantized weights by layer, and the model that runs them
    where that is more than the original with these weights; where the backends are compared by
    them, the integer codes (zero point taken off, [out, in]) and the groups of the columns ([in]).
    """

    weights: Mapping[str, Tensor]
    model: PreTrainedModel | None = None
    codes: Mapping[str, Tensor] | None = None
    groups: Mapping[str, Tensor] | None = None


@dataclass(frozen=True)
class Calibration:
    """The calibration set, int64 [sequences, context], and how many sequences go at once."""

    tokens: Tensor
    batch_size: int


# Checkpoint folders, calibration set, settings of the quantizer → one result a checkpoint.
Method = Callable[[Sequence[Path], Calibration, Mapping[str, Any]], Iterator[Quantized]]


def run_method(context: Context, method: Method) -> Mapping[str, Any]:
    """Quantize the job's checkpoints of its input trajectory."""
    config = context.settings
    source = context.input("trajectory")
    calibration = Calibration(
        tokens.blocks(
            context.input("corpus"),
            "calibration",
            config["context"],
            config["calibration_sequences"],
        ),
        config["calibration_batch"],
    )
    chosen = trajectory.at_steps(source, config["steps"])
    folders = [source.subfolder(checkpoint.folder) for checkpoint in chosen]
    rows = []
    results = _quietly(method(folders, calibration, config["settings"]), context.progress.log)
    for checkpoint, folder, quantized in zip(chosen, folders, results, strict=True):
        model = models.load(folder)
        if config["settings"].get("group_size"):
            check_groups(model, config["settings"]["group_size"])
        before = {name: layer.weight for name, layer in models.linear_layers(model).items()}
        grams = gram_matrices(model, calibration.tokens, calibration.batch_size)
        errors = layer_errors(before, quantized.weights, grams)
        rows += [{"step": checkpoint.step, "layer": n, **asdict(e)} for n, e in errors.items()]
        _save(context.out / checkpoint.folder, folder, model, quantized)
        if quantized.codes is not None and quantized.groups is not None:
            path = context.out / codes_file(checkpoint.folder)
            path.parent.mkdir(exist_ok=True)
            tensors = {name: codes.to(torch.int8) for name, codes in quantized.codes.items()}
            tensors |= {f"{name}.groups": groups for name, groups in quantized.groups.items()}
            save_file(tensors, path)
        context.progress.maybe(f"{len(rows) // len(errors)} of {len(chosen)} checkpoints")
    pd.DataFrame(rows).to_csv(context.out / LAYERS, index=False)
    facts = {k: v for k, v in source.facts.items() if k in ("parameters", "seed")}
    return trajectory.facts(
        chosen, quantized_layers=sorted({row["layer"] for row in rows}), **facts
    )


def _quietly(results: Iterator[Quantized], log: TextIO | None) -> Iterator[Quantized]:
    """The same results, with what the libraries print on stderr meanwhile (bars) in the log."""
    while True:
        with redirect_stderr(log or sys.stderr):
            found = next(results, None)
        if found is None:
            return
        yield found


def codes_file(folder: str) -> str:
    """File of the checkpoint in `folder`: integer codes, int8 [out, in], by layer, and as
    LAYER.groups the group of every column, int32 [in]."""
    return f"codes/{folder}.safetensors"


def _save(target: Path, source: Path, model: PreTrainedModel, quantized: Quantized) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.safetensors*"))
    if quantized.model is not None:
        quantized.model.save_pretrained(target)
        return
    for name, layer in models.linear_layers(model).items():
        layer.weight.data.copy_(quantized.weights[name])
    model.save_pretrained(target)


def dequantized(folder: Path) -> dict[str, Tensor]:
    """The plain state dict, float32 on the CPU, of a checkpoint that a quantization job saved."""
    model = models.load(folder)
    if getattr(model, "hf_quantizer", None) is not None:
        model = model.dequantize(dtype=torch.float32)
    return {name: value.float().cpu() for name, value in model.state_dict().items()}
