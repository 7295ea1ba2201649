"""Evaluate models on downstream tasks with lm-evaluation-harness."""

import json
import logging
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import lm_eval
import lm_eval.tasks
import numpy as np
import pyarrow.parquet as pq
from datasets import Dataset, DatasetDict
from datasets.table import InMemoryTable
from lm_eval.api.instance import Instance
from lm_eval.api.task import ConfigurableTask
from lm_eval.defaults import DEFAULT_OTHER_SEED
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks._yaml_loader import load_yaml
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.corpus.sources.datasets import load_tokenizer
from ptq_dynamics.engine.manifest import Manifest
from ptq_dynamics.measure.series import TaskSettings
from ptq_dynamics.measure.tasks import TaskPart

# A text with its continuation, and the tokens of both.
Request = tuple[tuple[str, str], list[int], list[int]]
Parts = Sequence[tuple[TaskPart, ConfigurableTask]]
BUILTIN = Path(lm_eval.tasks.__file__).parent
# Keys for the source of the data and for other tasks in a file.
ELSEWHERE = ("dataset_path", "dataset_name", "dataset_kwargs", "tag", "group", "task_list")


# The harness logs hints for every task and model.
logging.getLogger("lm_eval").setLevel(logging.ERROR)


def answered(
    tasks: Mapping[TaskSettings, Parts], model: PreTrainedModel, folder: Path
) -> dict[str, np.ndarray]:
    """Return the outcomes of every task for the model of a checkpoint folder."""
    tokenizer = load_tokenizer(str(folder), "main")
    return {
        settings.task: model_outcomes(AnsweringModel(settings, model, tokenizer), parts)
        for settings, parts in tasks.items()
    }


class AnsweringModel(HFLM):
    """A model of transformers that rejects prompts which the harness would truncate."""

    def __init__(
        self, settings: TaskSettings, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
    ) -> None:
        super().__init__(
            pretrained=model,
            tokenizer=tokenizer,
            max_length=settings.context,
            batch_size=settings.batch,
        )
        self.settings = settings
        marked = tokenizer("a", return_special_tokens_mask=True)
        pairs = zip(marked["input_ids"], marked["special_tokens_mask"], strict=True)
        last = takewhile(lambda pair: pair[1], reversed([*pairs]))
        self.after = [token for token, _ in last][::-1]

    def tok_encode(self, string: str, *arguments: Any, **options: Any) -> list[int]:
        """Return the tokens of a text without those that the tokenizer puts after it, such as EOS:
        the harness would score them instead of an answer."""
        tokens: list[int] = super().tok_encode(string, *arguments, **options)
        if self.after and tokens[-len(self.after) :] == self.after:
            return tokens[: -len(self.after)]
        return tokens

    def loglikelihood(
        self, requests: list[Instance], disable_tqdm: bool = True
    ) -> list[tuple[float, bool]]:
        """Return the log-likelihoods without a progress bar."""
        return super().loglikelihood(requests, disable_tqdm=True)

    def _loglikelihood_tokens(
        self, requests: list[Request], *arguments: bool, **options: bool
    ) -> list[tuple[float, bool]]:
        longest = max(len(text) + len(continuation) for _, text, continuation in requests)
        settings = self.settings
        # The model reads all tokens but the last, which is only scored.
        if longest > settings.context + 1:
            raise Problem(
                f"task {settings.task}: a prompt with {settings.shots} shots has {longest:,} "
                f"tokens, more than the context of {settings.context:,}; in the scale's file, "
                "lower tasks.shots or tasks.shots_of, raise tasks.context, or remove it from "
                "tasks.names (measure: raise --context, or leave it out of --tasks)"
            )
        return super()._loglikelihood_tokens(requests, *arguments, **options)


def model_outcomes(model: AnsweringModel, parts: Parts) -> np.ndarray:
    """Return the outcomes of all parts, float32 [documents], as `lm_eval.simple_evaluate` does."""
    for _, task in parts:
        if task.config.num_fewshot != 0:
            task.set_config(key="num_fewshot", value=model.settings.shots)
        task.set_fewshot_seed(seed=DEFAULT_OTHER_SEED)
    result = lm_eval.evaluate(
        model,
        {"tasks": {part.name: task for part, task in parts}},
        limit=model.settings.documents,
        bootstrap_iters=0,
        log_samples=True,
    )
    values = [
        sample[part.metric]
        for part, _ in parts
        for sample in sorted(result["samples"][part.name], key=lambda s: int(s["doc_id"]))
    ]
    return np.asarray(values, dtype=np.float32)


def load_parts(manifest: Manifest) -> list[tuple[TaskPart, ConfigurableTask]]:
    """Load the parts of a task from its files; a group of the harness has several parts."""
    loaded = []
    for part in (TaskPart(**part) for part in manifest.facts["parts"]):
        path = BUILTIN / part.definition if part.builtin else manifest.file(part.definition)
        config = {name: value for name, value in load_yaml(path).items() if name not in ELSEWHERE}
        data = DatasetDict({s: _read(manifest.file(file)) for s, file in part.splits.items()})
        # Otherwise, the harness would copy the files to its cache and query the hub.
        config["custom_dataset"] = lambda data=data, **_: data
        loaded.append((part, ConfigurableTask(config=config)))
    return loaded


def _read(file: Path) -> Dataset:
    if file.suffix == ".parquet":
        return Dataset(InMemoryTable(pq.read_table(file)))
    lines = file.read_text(encoding="utf-8").splitlines()
    return Dataset.from_list([json.loads(line) for line in lines])


def chance(parts: Parts, documents: int | None) -> float:
    """Return the mean of 1 / choices over documents, 0 for documents without choices."""
    shares = [
        1 / len(task.doc_to_choice(document)) if task.config.doc_to_choice is not None else 0.0
        for _, task in parts
        for _, document in task.doc_iterator(limit=documents)
    ]
    return float(np.mean(shares))
