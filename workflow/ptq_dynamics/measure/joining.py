"""The tidy measurements of one trajectory under one method."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from safetensors.numpy import load_file

from ptq_dynamics.jobs.context import Context
from ptq_dynamics.jobs.manifest import Manifest
from ptq_dynamics.measure import measurements
from ptq_dynamics.trajectories import trajectory


def run(context: Context) -> Mapping[str, Any]:
    """Join the evaluations of all shards, paired block by block with those in full precision."""
    reference = _losses(context.inputs.get("full_precision", []))
    layers = _layer_errors(context.inputs.get("quantized", []))
    rows = [
        row
        for manifest in context.inputs["evaluations"]
        for row in _rows(context.settings["columns"], manifest, reference, layers)
    ]
    measurements.write(measurements.table(rows), context.out / measurements.FILE)
    return {"rows": len(rows)}


def _rows(
    columns: Mapping[str, Any],
    manifest: Manifest,
    reference: Mapping[str, np.ndarray],
    layers: Mapping[int, pd.Series],
) -> Iterator[dict[str, Any]]:
    losses = _losses([manifest])
    for checkpoint in trajectory.checkpoints(manifest):
        found, digest = losses[checkpoint.folder], manifest.facts["digests"][checkpoint.folder]
        metrics: dict[str, tuple[float, float | None]] = {
            "loss": measurements.mean_and_error(found)
        }
        if reference:
            full = reference[checkpoint.folder]
            metrics["loss_increase"] = measurements.increase(full, found)
            metrics["quantization_error"] = measurements.relative_increase(full, found)
        if layers:
            errors = layers[checkpoint.step]
            metrics |= {name: (float(errors[name]), None) for name in ("weight_mse", "output_mse")}
        for metric, (value, stderr) in metrics.items():
            measured = {"metric": metric, "value": value, "stderr": stderr}
            yield measurements.row(columns, manifest, checkpoint, digest) | measured


def _losses(manifests: list[Manifest]) -> dict[str, np.ndarray]:
    losses: dict[str, np.ndarray] = {}
    for manifest in manifests:
        losses |= load_file(manifest.file("losses.safetensors"))
    return losses


def _layer_errors(manifests: list[Manifest]) -> dict[int, pd.Series]:
    """Mean over layers of the errors of every step."""
    if not manifests:
        return {}
    frames = [pd.read_csv(manifest.file("layers.csv")) for manifest in manifests]
    means = pd.concat(frames).groupby("step").mean(numeric_only=True)
    return {int(step): row for step, row in means.iterrows()}  # type: ignore[call-overload]
