"""Functions of installed packages and held-out documents, for what is asked and answered.

What an embedded corpus trains on is there to learn from; questions are about documents that it
holds out, and about those of `others`, packages that no corpus of the scale reads.
"""

import ast
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.corpus import docstrings, packages
from ptq_dynamics.corpus.sources.embedded import EmbeddedCorpus
from ptq_dynamics.corpus.splits import Split, deal
from ptq_dynamics.engine.context import Context
from ptq_dynamics.engine.manifest import Manifest

TRAIN = "train.jsonl"
HELD_OUT = "held_out.jsonl"
# Held-out text that nothing else reads for what it measures: calibration sets are GPTQ's to see.
ASKED: tuple[Split, ...] = ("validation", "probe")

# A sentence says something with so many words; a directive of reStructuredText begins with dots.
WORD, FEWEST_WORDS = re.compile(r"[A-Za-z]{2,}"), 3


class FunctionsSettings(Strict):
    """An embedded corpus, and `others`, packages that nothing is trained on."""

    corpus: EmbeddedCorpus
    others: tuple[str, ...]


@dataclass(frozen=True)
class Documented:
    """A docstring without indentation; of a function, also its `signature`, `name(argument, ...)`,
    and the `summary`, its first sentence, if it has one."""

    document: str
    signature: str | None = None
    summary: str | None = None


def run(context: Context[FunctionsSettings]) -> Mapping[str, Any]:
    """Write the documented functions of train, and all held-out docstrings, each once, a JSON
    object a line, ordered by the docstrings' sha256."""
    corpus, shortest = context.settings.corpus, context.settings.corpus.shortest_document
    known = _read(corpus.packages, shortest, whole=corpus.source_code)
    dealt = deal(packages.in_order(known), corpus.held_out)
    train = [known[text] for text in dealt["train"] if known[text].summary is not None]
    # Where source files are trained on, they have all docstrings in them.
    splits = () if corpus.source_code else ASKED
    asked = [known[text] for split in splits for text in dealt[split]]
    others = _read(context.settings.others, shortest)
    asked += [others[text] for text in packages.in_order(others.keys() - known.keys())]
    # Another version of a docstring may say the same of the same function.
    learned = {(each.signature, each.summary) for each in train}
    asked = [
        each
        for each in asked
        if each.summary is None or (each.signature, each.summary) not in learned
    ]
    for name, found in ((TRAIN, train), (HELD_OUT, asked)):
        lines = (json.dumps(asdict(each)) + "\n" for each in found)
        (context.out / name).write_text("".join(lines), encoding="utf-8")
    context.progress.say(f"{len(train):,} functions of train, {len(asked):,} held-out docstrings")
    return {"train": len(train), "held_out": len(asked)}


def load(manifest: Manifest, name: str) -> list[Documented]:
    """What `run` wrote to the file of this name."""
    lines = manifest.file(name).read_text(encoding="utf-8").splitlines()
    return [Documented(**json.loads(line)) for line in lines]


def _read(names: Iterable[str], shortest: int, *, whole: bool = False) -> dict[str, Documented]:
    """By the docstring; where several have one, the function with the first signature."""
    files = [file for each in names for file in packages.installed_files(each)]
    found = packages.read_all(files, partial(read, whole=whole))
    known: dict[str, Documented] = {}
    for each in sorted(
        chain.from_iterable(found), key=lambda each: (each.signature is None, each.signature or "")
    ):
        if len(each.document) >= shortest:
            known.setdefault(each.document, each)
    return known


def read(file: Path, whole: bool = False) -> list[Documented]:
    """What has a docstring in a source file; `whole`: its text, too."""
    found = []
    for node, text in docstrings.documented(file):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(Documented(text, signature(node), summary(text)))
        else:
            found.append(Documented(text))
    return [*found, Documented(file.read_text(encoding="utf-8"))] if whole else found


def signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Its name and its arguments' names: defaults and types are written in many ways."""
    arguments = node.args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    names += [f"*{arguments.vararg.arg}"] if arguments.vararg else []
    names += [each.arg for each in arguments.kwonlyargs]
    names += [f"**{arguments.kwarg.arg}"] if arguments.kwarg else []
    return f"{node.name}({', '.join(names)})"


def summary(document: str) -> str | None:
    """The first sentence of a docstring, where its first paragraph is one line that has one."""
    first = document.partition("\n\n")[0].strip()
    sentence, stop, _ = f"{first} ".partition(". ")
    says = len(WORD.findall(sentence)) >= FEWEST_WORDS and not sentence.startswith("..")
    return f"{sentence}." if stop and says and "\n" not in sentence else None
