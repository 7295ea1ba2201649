"""Measure every checkpoint of a trajectory, in full precision or quantized: errors of layers,
validation losses, and answers to downstream tasks, with one model in memory."""

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import save_file
from torch import Tensor

from ptq_dynamics import models
from ptq_dynamics.base.content import canonical, sha256
from ptq_dynamics.corpus import tokens
from ptq_dynamics.engine.context import Context
from ptq_dynamics.measure.loss import block_losses
from ptq_dynamics.measure.names import CHECKPOINT, LAYERS, LOSSES, OUTCOMES, STEP
from ptq_dynamics.measure.settings import MeasureSettings
from ptq_dynamics.train import trajectory
from ptq_dynamics.train.trajectory import Checkpoint, Trajectory


def run(context: Context[MeasureSettings]) -> Mapping[str, Any]:
    """Write the mean loss of every validation block, float32 [blocks], under the checkpoint's id;
    of tasks, the outcome of every document, 1 where right, float32 [documents], under
    TASK/CHECKPOINT; of quantized checkpoints, the errors of every layer, and the packed weights
    where they are kept.

    What is evaluated is read from the files of the packed weights, kept or not.
    """
    settings, source = context.settings, Trajectory(context.inputs["trajectory"])
    corpus, chosen = context.input("corpus"), source.at(settings.checkpoints)
    validation = tokens.blocks(corpus, "validation", settings.context, settings.blocks)
    found = _Quantizing(context, source, chosen) if settings.quantizer is not None else None
    asked = None
    if settings.tasks:
        # The harness takes seconds to import.
        from ptq_dynamics.measure.answers import Asking

        asked = Asking(settings.tasks, context)
    losses, outcomes = dict[str, Tensor](), dict[str, np.ndarray]()
    digests = dict[str, str]()
    for checkpoint in chosen:
        name = checkpoint.id
        folder = source.folder(checkpoint) if found is None else found.next(checkpoint)
        digests[name] = source.digest(checkpoint) if found is None else _digest(folder)
        with models.offloading(context.scratch, context.device_map):
            model = models.load(folder, torch.float32 if found is None else None)
            losses[name] = block_losses(model, validation, settings.batch)
            if asked is not None:
                answers = asked.answers(model, folder)
                outcomes |= {f"{task}/{name}": right for task, right in answers.items()}
        del model
        if found is not None and not settings.keep:
            shutil.rmtree(folder)
        context.progress.maybe(f"{name}  loss {float(losses[name].mean()):.4f}")
    save_file(losses, context.out / LOSSES)
    facts: dict[str, Any] = {"digests": digests, "tasks": {}}
    if asked is not None:
        save_arrays(outcomes, context.out / OUTCOMES)
        facts["tasks"] = asked.facts
    if found is not None:
        found.rows.to_csv(context.out / LAYERS, index=False)
        facts["quantized_layers"] = sorted(found.rows["layer"].unique())
        facts["raised_damping"] = found.raised_damping
    facts |= {fact: source.fact(fact) for fact in ("parameters", "seed")}
    return trajectory.facts(chosen, **facts)


class _Quantizing:
    """Quantizes the checkpoints of a job one after the other."""

    def __init__(
        self, context: Context[MeasureSettings], source: Trajectory, chosen: list[Checkpoint]
    ) -> None:
        settings = context.settings
        assert settings.quantizer is not None and settings.calibration is not None
        self._context, self._source = context, source
        self._calibration = settings.calibration.read(context.input("corpus"))
        self._target = context.out
        if not settings.keep:
            self._target = context.scratch / "packed"
            shutil.rmtree(self._target, ignore_errors=True)
            self._target.mkdir()
        folders = [source.folder(checkpoint) for checkpoint in chosen]
        self._results = settings.quantizer.each(folders, self._calibration, context)
        self._rows: list[dict[str, Any]] = []
        self.raised_damping: dict[str, Mapping[str, float]] = {}

    def next(self, checkpoint: Checkpoint) -> Path:
        """Folder of the packed weights of the next checkpoint; its layers' errors are noted."""
        from ptq_dynamics.quantize.layers import model_errors
        from ptq_dynamics.quantize.storage import original, quietly

        source, target = self._source.folder(checkpoint), self._target / checkpoint.id
        with quietly(self._context):
            result = next(self._results)
            result.save(source, target)
            # The model again: methods change theirs, and by now it is no longer in memory.
            model, batches = models.load(source), self._calibration.batches()
            errors = model_errors(model, original(source, model), result.weights, batches)
        whose = {CHECKPOINT: checkpoint.id, STEP: checkpoint.step}
        self._rows += [{**whose, "layer": layer, **asdict(each)} for layer, each in errors.items()]
        if result.raised_damping:
            self.raised_damping[checkpoint.id] = result.raised_damping
        return target

    @property
    def rows(self) -> pd.DataFrame:
        """Errors of every layer of every checkpoint."""
        return pd.DataFrame(self._rows)


def _digest(folder: Path) -> str:
    """Hex digest of a checkpoint's weights, as that of a trajectory's (`Trajectory.digest`)."""
    weights = {path.name: sha256(path) for path in folder.glob("*.safetensors")}
    return hashlib.sha256(canonical(weights).encode()).hexdigest()[:16]
