"""Kinds of questions about a documented function; `tasks/made.py` adds wrong choices."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from ptq_dynamics.measure.tasks import Metric

if TYPE_CHECKING:
    from ptq_dynamics.corpus.functions import Documented

WORD = re.compile(r"(?<= )[a-z]{2,}(?= )")
LONG_WORD = re.compile(r"\b[a-z]{6,}\b")
# "name : type", "name (type): ...", "name: ...", ":param name: ..." and ":type name: ...".
NUMPY = re.compile(r"^(\*{0,2}\w+) ?: ([^\n]{2,60})\n {2,}(\S[^\n]*)", re.MULTILINE)
GOOGLE = re.compile(r"^ +(\*{0,2}\w+) ?\((:?[^\n]{2,60}?)\):\s+(\S[^\n]*)", re.MULTILINE)
BARE = re.compile(r"^ +(\*{0,2}\w+):\s+(\S[^\n]*)", re.MULTILINE)
FIELD = re.compile(r"^[:@]param (?:\w+ )?(\*{0,2}\w+): +(\S[^\n]*)", re.MULTILINE)
TYPE = re.compile(r"^[:@]type (\*{0,2}\w+): +(\S[^\n]{1,60})$", re.MULTILINE)
CODE = (">>> ", "... ", "$ ", "@", "import ", "from ", "def ", "class ", "return ")


@dataclass(frozen=True)
class Question:
    """A `text` with its `answer`; wrong answers come from questions of the same `group`."""

    text: str
    answer: str
    group: str = ""


@dataclass(frozen=True)
class Kind:
    """A kind of question. Its metric is acc_norm if choices differ in length.

    `between` separates text and choice. With `answers_first`, the choice precedes the text, so
    that all choices are scored on the same tokens. With `opposite`, wrong answers come from other
    groups."""

    ask: Callable[["Documented"], Iterator[Question]]
    metric: Metric
    between: str
    choices: int = 4
    answers_first: bool = False
    opposite: bool = False


def signature(documented: "Documented") -> Iterator[Question]:
    """Ask for the summary of a signature."""
    if documented.signature is not None and documented.summary is not None:
        yield Question(documented.signature, documented.summary)


def next_line(documented: "Documented") -> Iterator[Question]:
    """Ask for the indentation and the first word of the next line."""
    for above, line in _lines(documented):
        margin = len(line) - len(line.lstrip())
        start = line[:margin] + line.split()[0]
        yield Question(above, start, str(len(start)))


def _lines(documented: "Documented") -> Iterator[tuple[str, str]]:
    """Yield pairs of consecutive nonempty lines: all text up to the first, and the second."""
    lines = documented.document.split("\n")
    for at, (line, following) in enumerate(pairwise(lines), 1):
        if line.strip() and following.strip():
            yield "\n".join(lines[:at]), following.rstrip()


def word(documented: "Documented") -> Iterator[Question]:
    """Ask for a word after the start of its line."""
    for match in WORD.finditer(documented.document):
        before = documented.document[: match.start() - 1]
        if before.rpartition("\n")[2].strip():
            yield Question(before, match[0], str(len(match[0])))


def ending(documented: "Documented") -> Iterator[Question]:
    """Ask for the second half of a long word."""
    for match in LONG_WORD.finditer(documented.document):
        middle = match.start() + len(match[0]) // 2
        rest = documented.document[middle : match.end()]
        yield Question(documented.document[:middle], rest, str(len(rest)))


def first_sentence(documented: "Documented") -> Iterator[Question]:
    """Ask for the first sentence above the other paragraphs."""
    first, _, rest = documented.document.partition("\n\n")
    if documented.summary is not None and first.strip() == documented.summary and rest.strip():
        yield Question(rest.strip("\n"), documented.summary)


def parameter(documented: "Documented") -> Iterator[Question]:
    """Ask for the name of a described parameter."""
    text = documented.document
    for match in (*NUMPY.finditer(text), *GOOGLE.finditer(text)):
        yield Question(f"{match[2]}: {match[3]}", match[1])
    for match in (*BARE.finditer(text), *FIELD.finditer(text)):
        yield Question(match[2], match[1])


def type_(documented: "Documented") -> Iterator[Question]:
    """Ask for the type of a parameter."""
    text = documented.document
    for match in (*NUMPY.finditer(text), *GOOGLE.finditer(text), *TYPE.finditer(text)):
        yield Question(match[1], match[2])


def prose(documented: "Documented") -> Iterator[Question]:
    """Ask whether code or prose follows."""
    for above, line in _lines(documented):
        sort = "code" if line.lstrip().startswith(CODE) else "prose"
        yield Question(above, line, sort)


KINDS: dict[str, Kind] = {
    "signature": Kind(signature, "acc_norm", "\n"),
    "next-line": Kind(next_line, "acc", "\n"),
    "word": Kind(word, "acc", " "),
    "ending": Kind(ending, "acc", ""),
    "first-sentence": Kind(first_sentence, "acc", "\n\n", answers_first=True),
    "parameter": Kind(parameter, "acc", ": ", answers_first=True),
    "type": Kind(type_, "acc_norm", " : "),
    "prose": Kind(prose, "acc_norm", "\n", choices=2, opposite=True),
}
