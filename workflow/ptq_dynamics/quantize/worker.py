"""Quantization by a library in an environment of its own: this side of the worker scripts."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from ptq_dynamics import models
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine import processes
from ptq_dynamics.engine.context import Context
from ptq_dynamics.models.packed import Grid
from ptq_dynamics.quantize import environment
from ptq_dynamics.quantize.method import Calibration, Quantized, calibration_of, run_method
from ptq_dynamics.quantize.settings import ForeignGptq, QuantizeSettings
from ptq_dynamics.quantize.storage import exact
from ptq_dynamics.train.trajectory import Trajectory

SCRIPTS = Path(__file__).parent / "foreign"
# The files that a script writes for every checkpoint (worker_protocol.py).
WEIGHTS, REPORT = "weights.safetensors", "report.json"


def run(context: Context[QuantizeSettings[ForeignGptq]]) -> Mapping[str, Any]:
    """Stage: quantize a trajectory's checkpoints with a tool in its own environment."""
    settings = context.settings
    source = Trajectory(context.inputs["trajectory"])
    folders = [source.folder(checkpoint) for checkpoint in source.at(settings.checkpoints)]
    # One process for all checkpoints: its library is imported once.
    targets = {folder: context.scratch / folder.name for folder in folders}
    _run(targets, context)

    reports = {
        folder: json.loads((target / REPORT).read_text())["settings"]
        for folder, target in targets.items()
    }
    for folder, report in reports.items():
        check_report(report, folder)

    def result(folder: Path, _calibration: Calibration, _settings: ForeignGptq) -> Quantized:
        tensors = load_file(targets[folder] / WEIGHTS)
        names = [key.removesuffix(".codes") for key in tensors if key.endswith(".codes")]
        bits = settings.quantizer.bits
        return Quantized.on({name: _grid(name, tensors, bits) for name in names})

    raised = {
        folder.name: report["raised_damping"]
        for folder, report in reports.items()
        if report.get("raised_damping")
    }
    return {**run_method(context, result), "raised_damping": raised}


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


def check_report(report: Mapping[str, Any], folder: Path) -> None:
    """Raise `Problem` where a tool gave up on GPTQ for a layer."""
    layers = report.get("fallback_layers", [])
    if layers:
        raise Problem(
            f"the tool rounded {', '.join(layers)} of {folder} instead of GPTQ, since its Hessian "
            "cannot be inverted; raise damping or the calibration set"
        )


def _run(targets: Mapping[Path, Path], context: Context[QuantizeSettings[ForeignGptq]]) -> None:
    """Run the tool's script; `targets` has the folder of the result by that of the checkpoint."""
    calibration, settings = calibration_of(context), asdict(context.settings.quantizer)
    script = SCRIPTS / f"{settings.pop('method')}_worker.py"
    for target in targets.values():
        target.mkdir()
    tokens, request = context.scratch / "calibration.npy", context.scratch / "request.json"
    np.save(tokens, calibration.tokens.numpy())
    content = {
        "checkpoints": [
            {"source": str(source.resolve()), "target": str(target.resolve())}
            for source, target in targets.items()
        ],
        "calibration": str(tokens.resolve()),
        "device": models.device().type,
        "settings": {**settings, "batch_size": calibration.together},
    }
    request.write_text(json.dumps(content))
    interpreter = environment.python(context.input("environment")).absolute()
    # GPTQModel leaves logs where it runs.
    process = processes.start(
        [str(interpreter), str(script), str(request.resolve())],
        folder=context.scratch,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    assert process.stderr is not None
    complaint = ""
    try:
        for line in process.stderr:
            if context.progress.log is not None:
                context.progress.log.write(line)
            if line.startswith("error: "):
                complaint = line.removeprefix("error: ").strip()
        process.wait()
    finally:
        processes.end(process)
    if process.returncode:
        raise Problem(
            complaint or f"the worker ended with status {process.returncode}; see the log"
        )
