"""Tasks made from held-out documents, as the harness takes them: YAML over JSON Lines.

What is asked, in which order, and beside which wrong choices follows from sha256 of the text and
the task's name, so no generator is behind it.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from heapq import nsmallest
from typing import Any, ClassVar, Literal

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.context import Context
from ptq_dynamics.measure.questions import KINDS, Kind, Question
from ptq_dynamics.measure.tasks import Task, TaskPart

Encode = Callable[[str], list[int]]
Candidate = tuple[str, Question]  # a document, and what is asked about it
DEFINITION = "task.yaml"
# Documents that a task asks about, and those that shots are drawn from.
FILES = {"test": "test.jsonl", "shots": "shots.jsonl"}


class MadeTask(Task):
    """Questions about documents that an embedded corpus holds out, of a kind that
    `ptq_dynamics/measure/questions.py` has."""

    made: ClassVar[bool] = True

    source: Literal["made"]
    kind: Literal[*KINDS]  # type: ignore[valid-type]


class MadeSettings(Strict):
    """A task of `documents` questions of a kind of `MadeTask`, and `pool` more to draw shots from;
    a prompt with `shots` of them has at most `context` tokens."""

    name: str
    kind: str
    documents: int
    pool: int
    shots: int
    context: int


@dataclass(frozen=True)
class Item:
    """One document of a task: `answer` is the place of the right one among `choices`, `document`
    the sha256 of the docstring that it is about."""

    text: str
    choices: list[str]
    answer: int
    document: str


def run(context: Context[MadeSettings]) -> Mapping[str, Any]:
    """Write task.yaml, and a JSON Lines file for the test and one for the shots."""
    import yaml
    from tokenizers import Tokenizer

    from ptq_dynamics.corpus import functions

    settings = context.settings
    name, kind = settings.name, KINDS[settings.kind]
    documents = functions.load(context.input("functions"), functions.HELD_OUT)
    tokenizer = Tokenizer.from_file(str(context.input("corpus").file("tokenizer/tokenizer.json")))
    parts = make(settings, documents, lambda t: tokenizer.encode(t, add_special_tokens=False).ids)
    for file, found in zip(FILES.values(), parts, strict=True):
        lines = (json.dumps(vars(each)) + "\n" for each in found)
        (context.out / file).write_text("".join(lines), encoding="utf-8")
    text = yaml.safe_dump(_definition(name, kind), sort_keys=False)
    (context.out / DEFINITION).write_text(text, encoding="utf-8")
    context.progress.say(f"{len(parts[0]):,} documents, {len(parts[1]):,} for shots")
    return {"task": name, "parts": [asdict(TaskPart(name, DEFINITION, False, FILES, kind.metric))]}


def _definition(task: str, kind: Kind) -> dict[str, Any]:
    """The task as the harness takes it, with files by their names beside it."""
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
    settings: MadeSettings, documents: Iterable[Any], encode: Encode
) -> tuple[list[Item], list[Item]]:
    """The documents of the test, and those to draw shots from, of `corpus.functions.Documented`."""
    # One token may be more where two examples meet.
    room = settings.context // (settings.shots + 1) - 1
    making = _Making(settings.name, KINDS[settings.kind], room, encode)
    candidates = making.candidates(documents)
    # Wrong answers come from the same part, so that shots and test have no document in common.
    part = len(candidates) * settings.pool // (settings.pool + settings.documents)
    shots = making.items(candidates[:part], settings.pool)
    test = making.items(candidates[part:], settings.documents)
    for key, found in (("documents", test), ("pool", shots)):
        if len(found) < (wanted := getattr(settings, key)):
            raise Problem(
                f"task {settings.name} has {len(found):,} {key} of at most {max(room, 0)} tokens "
                f"per question and shot, but needs {wanted:,}; in the scale's file, lower "
                f"tasks.{key} or shots, raise tasks.context, or name more packages in tasks.others"
            )
    return test, shots


class _Making:
    """Makes questions of a kind, with `room` tokens for each."""

    def __init__(self, task: str, kind: Kind, room: int, encode: Encode) -> None:
        self._task, self._kind, self._room = task, kind, room
        self._encode = encode
        # Docstrings of several functions may ask the same.
        self._seen = set[tuple[str, str]]()

    def candidates(self, documents: Iterable[Any]) -> list[Candidate]:
        """One question a document, in the order of their digests; what is right takes at most half
        of the room."""
        found = []
        for each in documents:
            asked, key = self._kind.ask(each), (self._task, each.document)
            fitting = [one for one in asked if 2 * self._tokens(one.answer) <= self._room]
            if fitting:
                first = min(fitting, key=lambda one: _digest(*key, one.answer))
                found.append((each.document, first))
        return sorted(found, key=lambda each: _digest(self._task, each[0]))

    def items(self, asked: Sequence[Candidate], most: int) -> list[Item]:
        """At most so many questions that fit and have wrong choices among the others' answers."""
        kind, items = self._kind, list[Item]()
        for document, question in asked:
            if len(items) == most:
                break
            right, group = question.answer, question.group
            near = [one for one in asked if (one[1].group != group) == kind.opposite]
            wrong = self._wrong(document, right, near)
            answer = len(items) % kind.choices
            choices = [*wrong[:answer], right, *wrong[answer:]]
            text = self._fitting(question, choices)
            if len(choices) < kind.choices or text is None or (text, right) in self._seen:
                continue
            if self._is_clear(text, choices):
                self._seen.add((text, right))
                items.append(Item(text, choices, answer, _digest(document)))
        return items

    def _wrong(self, document: str, right: str, others: Iterable[Candidate]) -> list[str]:
        """Answers of other documents, all different and about as long as the right one."""
        key, most = _digest(self._task, document), self._kind.choices - 1
        known = {question.answer for other, question in others if other != document} - {right}
        return nsmallest(most, known, lambda one: (abs(len(one) - len(right)), _digest(key, one)))

    def _fitting(self, question: Question, choices: Sequence[str]) -> str | None:
        """As many lines of the text as fit with every choice: the last ones, or, of what choices
        come before, the first; None where not even one does."""
        between = self._tokens(f"{self._kind.between}\n\n")
        left = self._room - max(self._tokens(each) for each in choices) - between
        lines = question.text.split("\n")
        for cut in range(len(lines)):
            part = lines[: len(lines) - cut] if self._kind.answers_first else lines[cut:]
            text = "\n".join(part).strip("\n")
            if text.strip() and self._tokens(text) <= left:
                return text
        return None

    def _is_clear(self, text: str, choices: Iterable[str]) -> bool:
        """Whether no token has parts of both text and choice, which could not be scored."""
        for each in choices:
            first, second = (each, text) if self._kind.answers_first else (text, each)
            before, whole = map(self._encode, (first, f"{first}{self._kind.between}{second}"))
            if len(whole) <= len(before) or whole[: len(before)] != before:
                return False
        return True

    def _tokens(self, text: str) -> int:
        return len(self._encode(text))


def _digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
