"""Quantization by a library in an environment of its own: this side of the worker scripts."""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from ptq_dynamics import models
from ptq_dynamics.jobs.context import Context
from ptq_dynamics.packed import Grid
from ptq_dynamics.problem import Problem
from ptq_dynamics.quantize import environment
from ptq_dynamics.quantize.method import Calibration, Quantized, run_method
from ptq_dynamics.quantize.storage import exact

SCRIPTS = Path(__file__).parent / "foreign"


def run_worker(context: Context, script: str) -> Mapping[str, Any]:
    """Quantize a trajectory's checkpoints with a script under quantize/foreign/."""
    return run_method(context, partial(_quantize, context, script))


def _quantize(
    context: Context,
    script: str,
    folders: Sequence[Path],
    calibration: Calibration,
    settings: Mapping[str, Any],
) -> Iterator[Quantized]:
    """One process for all checkpoints: its library is imported once."""
    targets = [context.scratch / folder.name for folder in folders]
    for target in targets:
        target.mkdir()
    tokens = context.scratch / "calibration.npy"
    np.save(tokens, calibration.tokens.numpy())
    request = context.scratch / "request.json"
    pairs = [
        {"source": str(source.resolve()), "target": str(target.resolve())}
        for source, target in zip(folders, targets, strict=True)
    ]
    content = {
        "checkpoints": pairs,
        "calibration": str(tokens.resolve()),
        "device": models.device().type,
        "settings": {**settings, "batch_size": calibration.batch_size},
    }
    request.write_text(json.dumps(content))
    interpreter = environment.python(context.input("environment")).absolute()
    _run([str(interpreter), str(SCRIPTS / script), str(request.resolve())], context)
    for target in targets:
        tensors = load_file(target / "weights.safetensors")
        names = [key.removesuffix(".codes") for key in tensors if key.endswith(".codes")]
        yield Quantized.on({name: _grid(name, tensors, settings["bits"]) for name in names})


def _grid(name: str, tensors: Mapping[str, Tensor], bits: int) -> Grid:
    """A layer of a worker's result; there, codes and zero points are from 0 on."""
    codes, zeros = (
        (tensors[f"{name}.{part}"].short() - (1 << bits - 1)).to(torch.int8)
        for part in ("codes", "zeros")
    )
    columns = tensors[f"{name}.g_idx"]
    grid = Grid(bits, codes, tensors[f"{name}.scales"], zeros if zeros.any() else None)
    if not torch.equal(columns, grid.groups()):
        grid = replace(grid, columns=columns)
    return exact(name, grid, tensors[f"{name}.weight"])


def _run(command: Sequence[str], context: Context) -> None:
    complaint = ""
    # GPTQModel leaves logs where it runs.
    process = subprocess.Popen(
        command,
        cwd=context.scratch,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if context.progress.log is not None:
            context.progress.log.write(line)
        if line.startswith("error: "):
            complaint = line.removeprefix("error: ").strip()
    if process.wait():
        raise Problem(
            complaint or f"the worker ended with status {process.returncode}; see the log"
        )
