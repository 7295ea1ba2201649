"""Make tasks for lm-evaluation-harness from held-out documents.

Questions, their order and their choices depend on sha256 digests, not on random numbers."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from heapq import nsmallest
from typing import TYPE_CHECKING, ClassVar, Literal

from ptq_dynamics.base import needs
from ptq_dynamics.base.fields import Strict
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.context import Context
from ptq_dynamics.measure.questions import KINDS, Kind, Question
from ptq_dynamics.measure.tasks import Task, TaskPart

if TYPE_CHECKING:
    from ptq_dynamics.corpus.functions import Documented

Encode = Callable[[str], list[int]]
Candidate = tuple[str, Question]  # a document and a question about it
DEFINITION = "task.yaml"
FILES = {"test": "test.jsonl", "shots": "shots.jsonl"}  # by split


class MadeTask(Task):
    """Questions of a kind in `measure/questions.py` about documents that a corpus holds out."""

    made: ClassVar[bool] = True

    source: Literal["made"]
    kind: Literal[*KINDS]  # type: ignore[valid-type]


class MadeSettings(Strict):
    """A task with `documents` questions, and a `pool` of more questions as examples.
    A prompt with `shots` examples has at most `context` tokens."""

    name: str
    kind: str
    documents: int
    pool: int
    shots: int
    context: int


@dataclass(frozen=True)
class Item:
    """A question with `choices`, the index of its `answer`, and the sha256 of its `document`."""

    text: str
    choices: list[str]
    answer: int
    document: str


def run(context: Context[MadeSettings]) -> Mapping[str, object]:
    """Write task.yaml, and JSON Lines files of the questions and of the pool."""
    import yaml
    from tokenizers import Tokenizer

    from ptq_dynamics.corpus import functions

    settings = context.settings
    name, kind = settings.name, KINDS[settings.kind]
    documents = functions.read_part(context.input(needs.FUNCTIONS), functions.HELD_OUT)
    tokenizer = Tokenizer.from_file(
        str(context.input(needs.CORPUS).file("tokenizer/tokenizer.json"))
    )
    tokenizer.no_truncation()
    tokenizer.no_padding()
    parts = make(settings, documents, lambda t: tokenizer.encode(t, add_special_tokens=False).ids)
    for file, items in zip(FILES.values(), parts, strict=True):
        lines = (json.dumps(vars(item)) + "\n" for item in items)
        (context.out / file).write_text("".join(lines), encoding="utf-8")
    text = yaml.safe_dump(_definition(name, kind), sort_keys=False)
    (context.out / DEFINITION).write_text(text, encoding="utf-8")
    context.progress.say(f"{len(parts[0]):,} questions, {len(parts[1]):,} for examples")
    return {"task": name, "parts": [asdict(TaskPart(name, DEFINITION, False, FILES, kind.metric))]}


def _definition(task: str, kind: Kind) -> dict[str, object]:
    """Return the harness's definition of the task."""
    mean = {"aggregation": "mean", "higher_is_better": True}
    text, target = ("answer", "text") if kind.answers_first else ("text", "answer")
    return {
        "task": task,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": FILES},
        "output_type": "multiple_choice",
        "test_split": "test",
        "fewshot_split": "shots",
        "doc_to_text": text,
        "doc_to_choice": "choices",
        "doc_to_target": target,
        "target_delimiter": kind.between,
        "metric_list": [{"metric": metric, **mean} for metric in ("acc", "acc_norm")],
    }


def make(
    settings: MadeSettings, documents: Iterable["Documented"], encode: Encode
) -> tuple[list[Item], list[Item]]:
    """Return the questions and the pool of documents."""
    # Joining two examples may add one token.
    room = settings.context // (settings.shots + 1) - 1
    making = _Making(settings.name, KINDS[settings.kind], room, encode)
    candidates = making.candidates(documents)
    # Wrong answers come from the same part, so that the two parts share no document.
    part = len(candidates) * settings.pool // (settings.pool + settings.documents)
    shots = making.items(candidates[:part], settings.pool)
    test = making.items(candidates[part:], settings.documents)
    for key, items in (("documents", test), ("pool", shots)):
        if len(items) < (wanted := getattr(settings, key)):
            raise Problem(
                f"task {settings.name} has {len(items):,} {key} of at most {max(room, 0)} tokens "
                f"per question and shot, but needs {wanted:,}; in the scale's file, lower "
                f"tasks.{key} or shots, raise tasks.context, or name more packages in tasks.others "
                "(measure: leave it out of --tasks)"
            )
    return test, shots


@dataclass
class _Making:
    """Make questions of a kind for a task, with `room` tokens for each."""

    task: str
    kind: Kind
    room: int
    encode: Encode
    # Docstrings of several functions may give the same question.
    seen: set[tuple[str, str]] = field(default_factory=set)

    def candidates(self, documents: Iterable["Documented"]) -> list[Candidate]:
        """Return one question per document, whose answer takes at most half of the room."""
        candidates = []
        for text in documents:
            questions, key = self.kind.ask(text), (self.task, text.document)
            fitting = [one for one in questions if 2 * self._tokens(one.answer) <= self.room]
            if fitting:
                first = min(fitting, key=lambda one: _digest(*key, one.answer))
                candidates.append((text.document, first))
        return sorted(candidates, key=lambda one: _digest(self.task, one[0]))

    def items(self, candidates: Sequence[Candidate], most: int) -> list[Item]:
        """Return at most `most` questions that fit, with answers of others as wrong choices."""
        kind, items = self.kind, list[Item]()
        for document, question in candidates:
            if len(items) == most:
                break
            right, group = question.answer, question.group
            near = [one for one in candidates if (one[1].group != group) == kind.opposite]
            wrong = self._wrong(document, right, near)
            answer = len(items) % kind.choices
            choices = [*wrong[:answer], right, *wrong[answer:]]
            text = self._fitting(question, choices)
            if len(choices) < kind.choices or text is None or (text, right) in self.seen:
                continue
            if self._is_clear(text, choices):
                self.seen.add((text, right))
                items.append(Item(text, choices, answer, _digest(document)))
        return items

    def _wrong(self, document: str, right: str, others: Iterable[Candidate]) -> list[str]:
        """Return different answers of other documents, about as long as the right one."""
        key, most = _digest(self.task, document), self.kind.choices - 1
        known = {question.answer for other, question in others if other != document} - {right}
        return nsmallest(most, known, lambda one: (abs(len(one) - len(right)), _digest(key, one)))

    def _fitting(self, question: Question, choices: Sequence[str]) -> str | None:
        """Return the lines nearest to the choices that fit with every choice, or None."""
        between = self._tokens(f"{self.kind.between}\n\n")
        left = self.room - max(map(self._tokens, choices)) - between
        lines = question.text.split("\n")
        for cut in range(len(lines)):
            part = lines[: len(lines) - cut] if self.kind.answers_first else lines[cut:]
            text = "\n".join(part).strip("\n")
            if text.strip() and self._tokens(text) <= left:
                return text
        return None

    def _is_clear(self, text: str, choices: Iterable[str]) -> bool:
        """Return whether no token contains parts of both text and choice."""
        for choice in choices:
            first, second = (choice, text) if self.kind.answers_first else (text, choice)
            before, both = map(self.encode, (first, f"{first}{self.kind.between}{second}"))
            if len(both) <= len(before) or both[: len(before)] != before:
                return False
        return True

    def _tokens(self, text: str) -> int:
        return len(self.encode(text))


def _digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
