"""Accuracy of every checkpoint of a trajectory on a downstream task, full precision or quantized,
through lm-evaluation-harness."""

import importlib.util
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lm_eval
import numpy as np
import torch
from lm_eval.api.model import TemplateLM
from lm_eval.api.task import ConfigurableTask
from lm_eval.defaults import DEFAULT_OTHER_SEED
from lm_eval.models.huggingface import HFLM
from safetensors.numpy import save_file
from transformers import AutoTokenizer

from ptq_dynamics import models
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.context import Context
from ptq_dynamics.measure.names import OUTCOMES
from ptq_dynamics.measure.settings import AccuracySettings
from ptq_dynamics.measure.tasks import loading
from ptq_dynamics.measure.tasks.names import Part
from ptq_dynamics.train import trajectory
from ptq_dynamics.train.trajectory import Trajectory

Parts = Sequence[tuple[Part, ConfigurableTask]]


def run(context: Context[AccuracySettings]) -> Mapping[str, Any]:
    """Write the outcome of every document, 1 where right, float32 [documents], under the
    checkpoint's id; facts: how many documents, the metric, and what guessing reaches.

    Full-precision models run in float32, quantized ones in their own dtype (section 2). Raises
    `Problem` for a prompt that is longer than the context.
    """
    settings, source = context.settings, Trajectory(context.inputs["checkpoints"])
    # Its hints at every task and model would bury the progress lines.
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    task = context.input("task")
    name, parts = task.facts["task"], loading.load(task)
    dtype = torch.float32 if settings.full_precision else None
    chosen = source.at(settings.checkpoints)
    found = {}
    for checkpoint in chosen:
        folder = source.folder(checkpoint)
        with models.offloading(context.scratch, context.device_map):
            model = _model(folder, dtype, name, settings)
            found[checkpoint.id] = outcomes(model, parts, settings.shots, settings.documents)
        del model
        accuracy = float(found[checkpoint.id].mean())
        context.progress.maybe(f"{checkpoint.id}  accuracy {accuracy:.3f}")
    save_file(found, context.out / OUTCOMES)
    return trajectory.facts(
        chosen,
        digests={checkpoint.id: source.digest(checkpoint) for checkpoint in chosen},
        seed=source.seed,
        task=name,
        documents=len(next(iter(found.values()))),
        metric=sorted({part.metric for part, _ in parts}),
        chance=chance(parts, settings.documents),
    )


def outcomes(model: TemplateLM, parts: Parts, shots: int, documents: int | None) -> np.ndarray:
    """Outcome of the first documents of every part, one part after the other, float32 [documents].

    As the harness's `simple_evaluate` has it, but for its account of the machine, which takes it
    20 s a call.
    """
    for _, task in parts:
        if task.config.num_fewshot != 0:
            task.set_config(key="num_fewshot", value=shots)
        task.set_fewshot_seed(seed=DEFAULT_OTHER_SEED)
    tasks: Any = {part.name: task for part, task in parts}
    result = lm_eval.evaluate(
        model, {"tasks": tasks}, limit=documents, bootstrap_iters=0, log_samples=True
    )
    assert result is not None and "samples" in result
    samples = result["samples"]
    values = [
        each[part.metric]
        for part, _ in parts
        for each in sorted(samples[part.name], key=lambda sample: int(sample["doc_id"]))
    ]
    return np.asarray(values, dtype=np.float32)


def chance(parts: Parts, documents: int | None) -> float:
    """Mean of one over the number of choices; 0 where there are none."""
    found = []
    for _, task in parts:
        for _, document in task.doc_iterator(limit=documents):
            choices = task.config.doc_to_choice is not None and task.doc_to_choice(document)
            found.append(1 / len(choices) if choices else 0.0)
    return float(np.mean(found))


def _model(
    folder: Path, dtype: torch.dtype | None, task: str, settings: AccuracySettings
) -> TemplateLM:
    """A checkpoint as the harness takes it. With vllm it is read by vllm itself, which is not
    tested here."""
    if settings.backend == "vllm":
        if importlib.util.find_spec("vllm") is None:
            raise Problem(
                "tasks.backend is vllm, which is not installed; install it, or say transformers in "
                "the scale's file under config/scales"
            )
        from lm_eval.models.vllm_causallms import VLLM

        kind = type("WholeVllm", (_Whole, VLLM), {})
        options = {"max_model_len": settings.context + 1, "batch_size": settings.batch}
        own = "auto" if dtype is None else "float32"
        model = kind(pretrained=str(folder), dtype=own, **options)
    else:
        model = _Transformers(
            pretrained=models.load(folder, dtype),
            tokenizer=AutoTokenizer.from_pretrained(folder, local_files_only=True),
            max_length=settings.context,
            batch_size=settings.batch,
        )
    model.task, model.shots, model.most = task, settings.shots, settings.context
    whole: TemplateLM = model
    return whole


class _Whole:
    """Refuses what the harness would cut from the left: `most` tokens are read, one more scored."""

    task: str
    shots: int
    most: int

    def loglikelihood(self, requests: Any, disable_tqdm: bool = True) -> Any:
        return super().loglikelihood(requests, disable_tqdm=True)  # type: ignore[misc]

    def _loglikelihood_tokens(self, requests: Any, **options: Any) -> Any:
        longest = max(len(text) + len(continuation) for _, text, continuation in requests)
        if longest > self.most + 1:
            raise Problem(
                f"task {self.task}: a prompt with {self.shots} shots has {longest:,} tokens, more "
                f"than the context of {self.most:,}; in the scale's file under config/scales, "
                "lower tasks.shots or the task's in tasks.shots_of, raise tasks.context where the "
                "model reads more, or take the task out of tasks.names"
            )
        return super()._loglikelihood_tokens(requests, **options)  # type: ignore[misc]


class _Transformers(_Whole, HFLM):
    """A model of transformers."""
