"""Measure checkpoints of a trajectory, in full precision or quantized: errors of layers,
validation losses, and answers to downstream tasks, with one model in memory."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import save_file
from torch import Tensor
from transformers.modeling_outputs import CausalLMOutput

from ptq_dynamics import models
from ptq_dynamics.base import needs
from ptq_dynamics.base.checkpoints import ROUTER
from ptq_dynamics.base.content import sha256
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.corpus import tokens
from ptq_dynamics.engine.context import Context
from ptq_dynamics.measure import names
from ptq_dynamics.measure.carried import carried
from ptq_dynamics.measure.metrics import Measured, OfPredictions
from ptq_dynamics.measure.names import CHECKPOINT_ID, LAYERS, LOSSES, OUTCOMES, STEP
from ptq_dynamics.measure.series import MeasureSettings, TaskSettings
from ptq_dynamics.trajectories import trajectory
from ptq_dynamics.trajectories.trajectory import Checkpoint, Trajectory

if TYPE_CHECKING:
    from ptq_dynamics.measure.answers import Parts

SHOWN = 4  # matrices that an error names
# A checkpoint and the folder of its weights; of quantized ones also errors by layer, and facts:
# raised damping by layer, and matrices that were left out.
Made = Iterator[tuple[Checkpoint, Path, Mapping[str, Mapping[str, float]], Mapping[str, object]]]


def run(context: Context[MeasureSettings]) -> Mapping[str, object]:
    """Write the mean loss of every validation block, float32 [blocks], under the checkpoint's id;
    of tasks, the outcome of every document, float32 [documents], under TASK/CHECKPOINT; of
    quantized checkpoints, the errors of every layer, and the packed weights where they are kept.
    What the blocks of the last checkpoint carry is a fact."""
    settings, source = context.settings, Trajectory(context.inputs[needs.TRAJECTORY])
    corpus, chosen = context.input(needs.CORPUS), source.at(settings.checkpoints)
    validation = tokens.blocks(corpus, "validation", settings.context, settings.blocks)
    is_full = settings.quantizer is None
    tasks = dict[TaskSettings, "Parts"]()
    if settings.tasks:
        from ptq_dynamics.measure import answers  # the harness takes seconds to import

        for task in settings.tasks:
            tasks[task] = answers.load_parts(context.input(needs.task(task.task)))
    losses, outcomes = dict[str, Tensor](), dict[str, np.ndarray]()
    values = list[tuple[str, str, float, float | None]]()
    of_predictions = [metric for metric in settings.metrics if isinstance(metric, OfPredictions)]
    digests, rows = dict[str, str](), list[dict[str, object]]()
    facts: dict[str, object] = {"digests": digests, "tasks": {}, "carried": {}}
    by_name: dict[str, dict[str, object]] = {} if is_full else {"raised_damping": {}}
    plain: Made = ((checkpoint, source.folder(checkpoint), {}, {}) for checkpoint in chosen)
    made = plain if is_full else _quantized(context, source, chosen)
    for checkpoint, folder, errors, about in made:
        name = checkpoint.id
        if is_full:
            digests[name] = source.digest(checkpoint)
        else:
            files = {path.name: sha256(path) for path in folder.glob("*.safetensors")}
            digests[name] = trajectory.weights_digest(files)
        key = {CHECKPOINT_ID: name, STEP: checkpoint.step}
        rows += [{**key, "layer": layer, **numbers} for layer, numbers in errors.items()]
        for fact, content in about.items():
            by_name.setdefault(fact, {})[name] = content
        with models.offloading(context.scratch):
            model = models.load(folder, torch.float32 if is_full else None)
            place = source.folder(checkpoint)
            losses[name], means = _losses(model, place, of_predictions, validation, settings.batch)
            if not losses[name].isfinite().all():
                raise Problem(
                    f"the loss of {name} is not finite; leave the checkpoint or the quantizer out"
                )
            if tasks:
                right = answers.answered(tasks, model, folder)
                outcomes |= {f"{task}/{name}": values for task, values in right.items()}
            for metric in settings.metrics:
                now = Measured(model, place, validation, losses[name], settings.batch, means)
                values.append((name, metric.columns[0].name, *metric.measure(now)))
            if settings.carried and checkpoint == chosen[-1]:
                first = validation[: settings.carried]
                facts["carried"] = {name: carried(model, first, settings.batch)}
        del model
        context.progress.maybe(f"{name}  loss {float(losses[name].mean()):.4f}")
    save_file(losses, context.out / LOSSES)
    if tasks:
        save_arrays(outcomes, context.out / OUTCOMES)
        facts["tasks"] = {
            task.task: {"chance": answers.chance(parts, task.documents)}
            for task, parts in tasks.items()
        }
    if values:
        columns = [CHECKPOINT_ID, names.METRIC, names.VALUE, names.ERROR]
        pd.DataFrame(values, columns=columns).to_csv(context.out / names.VALUES, index=False)
    if rows:
        pd.DataFrame(rows).to_csv(context.out / LAYERS, index=False)
        facts["quantized_layers"] = sorted({str(row["layer"]) for row in rows})
    facts |= by_name | {fact: source.fact(fact) for fact in ("parameters", "seed")}
    return trajectory.facts(chosen, **facts)


def _losses(
    model: torch.nn.Module,
    folder: Path,
    metrics: Sequence[OfPredictions],
    blocks: Tensor,
    batch_size: int,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss of each block, float32 [n], and of each metric of predictions the mean over
    the tokens of a block, [n], with the weights in a folder as full precision."""
    full = models.load(folder, torch.float32) if metrics else model
    means = {metric.metric: list[Tensor]() for metric in metrics}

    # One sequence at a time, because logits of large vocabularies take gigabytes.
    def compare(_model: object, inputs: tuple[Tensor], output: CausalLMOutput) -> None:
        expected = full(inputs[0].to(models.inputs_device(full)), use_cache=False).logits
        assert output.logits is not None
        for p, q in zip(expected, output.logits, strict=True):
            for metric in metrics:
                means[metric.metric].append(metric.of(p, q.to(p.device)).mean().cpu())

    handles = [model.register_forward_hook(compare)] if metrics else []
    losses = models.block_losses(model, blocks, batch_size)
    for handle in handles:
        handle.remove()
    return losses, {name: torch.stack(values) for name, values in means.items()}


def _quantized(
    context: Context[MeasureSettings], source: Trajectory, chosen: list[Checkpoint]
) -> Made:
    from ptq_dynamics.quantize.layers import model_errors
    from ptq_dynamics.quantize.storage import original, quietly

    settings = context.settings
    assert settings.quantizer is not None and settings.calibration is not None
    place = context.out if settings.keep else context.scratch / "packed"
    calibration = settings.calibration.read(context.input(needs.CORPUS))
    folders = [source.folder(checkpoint) for checkpoint in chosen]
    results = settings.quantizer.quantize_all(folders, calibration, context)
    for checkpoint, folder in zip(chosen, folders, strict=True):
        target = place / checkpoint.id
        shutil.rmtree(target, ignore_errors=True)
        with quietly(context):
            result = next(results)
            result.save(folder, target)
            # Loaded again, because methods change their model.
            model, batches = models.load(folder), calibration.batches()
            left = models.left_out(model, result.weights)
            refused = [name for name in left if not ROUTER.search(name)]
            if refused and not settings.skip:
                raise Problem(
                    f"{settings.quantizer.method} does not take {len(refused)} matrices of "
                    f"{folder}: {', '.join(refused[:SHOWN])}...; --skip leaves them in full "
                    "precision"
                )
            errors = {}
            if settings.layers:
                errors = model_errors(model, original(folder, model), result.weights, batches)
        about = {"raised_damping": result.raised_damping, "left_out": left}
        del result, model
        yield checkpoint, target, errors, {name: fact for name, fact in about.items() if fact}
        if not settings.keep:
            shutil.rmtree(target)
