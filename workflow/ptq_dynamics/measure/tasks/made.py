"""Tasks made from held-out documents, as the harness takes them: YAML over JSON Lines.

Questions are about documents that nothing is trained on. What is asked, in which order, and beside
which wrong choices is decided by sha256 of the text and the task's name, so that no state of a
generator is behind it.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.context import Context
from ptq_dynamics.measure.questions import KINDS, Kind, Question
from ptq_dynamics.measure.tasks import Part, Task, facts

if TYPE_CHECKING:
    from ptq_dynamics.corpus.functions import Documented

Encode = Callable[[str], list[int]]
# Of a made task: its definition, the documents that it asks about, and those that shots are drawn
# from.
DEFINITION, TEST, SHOTS = "task.yaml", "test", "shots"
FILES = {TEST: f"{TEST}.jsonl", SHOTS: f"{SHOTS}.jsonl"}


def _known(kind: str) -> str:
    if kind not in KINDS:
        raise ValueError(f"must be one of {', '.join(map(repr, KINDS))}")
    return kind


class MadeTask(Task):
    """Questions about documents that an embedded corpus holds out, of a kind that
    `ptq_dynamics/measure/questions.py` has."""

    made: ClassVar[bool] = True

    source: Literal["made"]
    kind: Annotated[str, AfterValidator(_known), Field(json_schema_extra={"enum": [*KINDS]})]


class MadeSettings(Strict):
    """A task of `documents` questions of a kind, and `pool` more to draw shots from; a prompt with
    `shots` of them has at most `context` tokens."""

    name: str
    task: MadeTask
    documents: int
    pool: int
    shots: int
    context: int

    @property
    def kind(self) -> Kind:
        """What is asked."""
        return KINDS[self.task.kind]


@dataclass(frozen=True)
class Candidate:
    """What is asked about a document."""

    document: str
    question: Question


@dataclass(frozen=True)
class Item:
    """One document of a task: `answer` is the place of the right one among `choices`, `document`
    the sha256 of the docstring that it is about."""

    text: str
    choices: list[str]
    answer: int
    document: str


def run(context: Context[MadeSettings]) -> Mapping[str, Any]:
    """Write task.yaml, and a JSON Lines file for the test and one for the shots.

    Raises `Problem` when the documents give fewer than asked for.
    """
    import yaml
    from tokenizers import Tokenizer

    from ptq_dynamics.corpus import functions

    settings, kind = context.settings, context.settings.kind
    documents = functions.load(context.input("functions"), functions.HELD_OUT)
    file = context.input("corpus").file("tokenizer/tokenizer.json")
    tokenizer = Tokenizer.from_file(str(file))

    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    test, shots = make(settings, documents, encode)
    for name, found in ((TEST, test), (SHOTS, shots)):
        lines = (json.dumps(vars(each)) + "\n" for each in found)
        (context.out / FILES[name]).write_text("".join(lines), encoding="utf-8")
    text = yaml.safe_dump(definition(settings.name, kind), sort_keys=False)
    (context.out / DEFINITION).write_text(text, encoding="utf-8")
    context.progress.say(f"{len(test):,} documents, {len(shots):,} for shots")
    part = Part(settings.name, DEFINITION, False, FILES, kind.metric)
    return facts(settings.name, [part])


def definition(task: str, kind: Kind) -> dict[str, Any]:
    """The task as the harness takes it, with files by their names beside it."""
    mean = {"aggregation": "mean", "higher_is_better": True}
    text, target = ("answer", "text") if kind.answers_first else ("text", "answer")
    return {
        "task": task,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": FILES},
        "output_type": "multiple_choice",
        "test_split": TEST,
        "fewshot_split": SHOTS,
        "doc_to_text": text,
        "doc_to_choice": "choices",
        "doc_to_target": target,
        "target_delimiter": kind.between,
        "metric_list": [{"metric": metric, **mean} for metric in ("acc", "acc_norm")],
    }


def make(
    settings: MadeSettings, documents: "Sequence[Documented]", encode: Encode
) -> tuple[list[Item], list[Item]]:
    """The documents of the test, and those to draw shots from."""
    # One token may be more where two examples meet.
    room = settings.context // (settings.shots + 1) - 1
    test, shots = _parts(settings, documents, room, encode)
    for found, wanted, key in (
        (test, settings.documents, "documents"),
        (shots, settings.pool, "pool"),
    ):
        if len(found) < wanted:
            raise Problem(
                f"task {settings.name} has {len(found):,} {key} with {max(room, 0)} tokens for "
                f"each question and shot, and {wanted:,} are asked for; in the scale's file under "
                f"config/scales, lower tasks.{key} or shots, raise tasks.context where the model "
                "reads more, or name more packages in tasks.others"
            )
    return test, shots


def _parts(
    settings: MadeSettings, documents: "Sequence[Documented]", room: int, encode: Encode
) -> tuple[list[Item], list[Item]]:
    """As many as there are of what is asked for, with so many tokens for each question."""
    kind, task = settings.kind, settings.name
    asked = list(_candidates(task, kind, documents, room, encode))
    # Wrong answers come from the same part, so that shots and test have no document in common.
    part = len(asked) * settings.pool // (settings.pool + settings.documents)
    seen = set[tuple[str, str]]()
    shots = _items(task, kind, asked[:part], settings.pool, room, encode, seen)
    test = _items(task, kind, asked[part:], settings.documents, room, encode, seen)
    return test, shots


def _candidates(
    task: str, kind: Kind, documents: "Iterable[Documented]", room: int, encode: Encode
) -> Iterator[Candidate]:
    """One question a document, in the order of their digests; what is right takes at most half of
    the room."""
    found = []
    for each in documents:
        questions = [one for one in kind.ask(each) if 2 * len(encode(one.answer)) <= room]
        if questions:
            first = min(questions, key=lambda one: _digest(task, each.document, one.answer))
            found.append(Candidate(each.document, first))
    yield from sorted(found, key=lambda each: _digest(task, each.document))


def _items(
    task: str,
    kind: Kind,
    asked: Sequence[Candidate],
    most: int,
    room: int,
    encode: Encode,
    seen: set[tuple[str, str]],
) -> list[Item]:
    """At most so many questions that fit and have wrong choices among the others' answers; none
    that was `seen`, for docstrings of several functions may ask the same."""
    groups: dict[str, list[Candidate]] = {}
    for each in asked:
        groups.setdefault(each.question.group, []).append(each)
    items = list[Item]()
    for each in asked:
        if len(items) == most:
            break
        own = each.question.group
        near = [
            o for name, found in groups.items() if (name != own) == kind.opposite for o in found
        ]
        wrong = _wrong(task, each, near, kind.choices - 1)
        answer = len(items) % kind.choices
        choices = [*wrong[:answer], each.question.answer, *wrong[answer:]]
        text = _fitting(kind, each.question, choices, room, encode)
        if len(choices) < kind.choices or text is None:
            continue
        if (text, each.question.answer) in seen or not _is_clear(kind, text, choices, encode):
            continue
        seen.add((text, each.question.answer))
        items.append(Item(text, choices, answer, _digest(each.document)))
    return items


def _wrong(task: str, asked: Candidate, others: Iterable[Candidate], most: int) -> list[str]:
    """Answers of other documents, all different and as long as the right one, or nearly."""
    right = asked.question.answer
    known = {each.question.answer for each in others if each.document != asked.document} - {right}
    # Near in length, so that neither few nor many tokens give the right one away.
    by_length: dict[int, list[str]] = {}
    for answer in known:
        by_length.setdefault(abs(len(answer) - len(right)), []).append(answer)
    key, found = _digest(task, asked.document), list[str]()
    for length in sorted(by_length):
        found += sorted(by_length[length], key=lambda answer: _digest(key, answer))
        if len(found) >= most:
            break
    return found[:most]


def _fitting(
    kind: Kind, question: Question, choices: Sequence[str], room: int, encode: Encode
) -> str | None:
    """As many lines of the text as fit with every choice: the last ones, or, of what choices come
    before, the first; None where not even one does."""
    left = room - max(len(encode(each)) for each in choices) - len(encode(f"{kind.between}\n\n"))
    lines = question.text.split("\n")
    parts = (
        (lines[:end] for end in range(len(lines), 0, -1))
        if kind.answers_first
        else (lines[start:] for start in range(len(lines)))
    )
    texts = ("\n".join(part).strip("\n") for part in parts)
    return next((text for text in texts if text.strip() and len(encode(text)) <= left), None)


def _is_clear(kind: Kind, text: str, choices: Iterable[str], encode: Encode) -> bool:
    """Whether no token has parts of both text and choice, which could not be scored."""
    pairs = ((each, text) if kind.answers_first else (text, each) for each in choices)
    for first, second in pairs:
        before, whole = encode(first), encode(f"{first}{kind.between}{second}")
        if len(whole) <= len(before) or whole[: len(before)] != before:
            return False
    return True


def _digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
