"""Functions of installed packages and held-out documents, for what is asked and answered.

What an embedded corpus trains on is there to learn from; questions are about documents that it
holds out, and about those of `others`, packages that no corpus of the scale reads.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.corpus import docstrings, packages
from ptq_dynamics.corpus.docstrings import Documented
from ptq_dynamics.corpus.sources.embedded import EmbeddedCorpus
from ptq_dynamics.corpus.splits import Split, deal
from ptq_dynamics.engine.context import Context
from ptq_dynamics.engine.manifest import Manifest

TRAIN = "train.jsonl"
HELD_OUT = "held_out.jsonl"
# Held-out text that nothing else reads for what it measures: calibration sets are GPTQ's to see.
ASKED: tuple[Split, ...] = ("validation", "probe")


class FunctionsSettings(Strict):
    """An embedded corpus, and `others`, packages that nothing is trained on."""

    corpus: EmbeddedCorpus
    others: tuple[str, ...]


def run(context: Context[FunctionsSettings]) -> Mapping[str, Any]:
    """Write the documented functions of train, and all held-out docstrings, each once, a JSON
    object a line, ordered by the docstrings' sha256."""
    corpus, shortest = context.settings.corpus, context.settings.corpus.shortest_document
    known = docstrings.documented(corpus.packages, shortest, corpus.source_code)
    dealt = deal(packages.in_order(known), corpus.held_out)
    train = [known[text] for text in dealt["train"] if known[text].summary is not None]
    # Where source files are trained on, they have all docstrings in them.
    splits = () if corpus.source_code else ASKED
    asked = [known[text] for split in splits for text in dealt[split]]
    others = docstrings.documented(context.settings.others, shortest)
    asked += [others[text] for text in packages.in_order(others.keys() - known.keys())]
    # Another version of a docstring may say the same of the same function.
    learned = {(each.signature, each.summary) for each in train}
    asked = [each for each in asked if (each.signature, each.summary) not in learned]
    for name, found in ((TRAIN, train), (HELD_OUT, asked)):
        lines = (json.dumps(asdict(each)) + "\n" for each in found)
        (context.out / name).write_text("".join(lines), encoding="utf-8")
    context.progress.say(f"{len(train):,} functions of train, {len(asked):,} held-out docstrings")
    return {"train": len(train), "held_out": len(asked)}


def load(manifest: Manifest, name: str) -> list[Documented]:
    """What `run` wrote to the file of this name."""
    lines = manifest.file(name).read_text(encoding="utf-8").splitlines()
    return [Documented(**json.loads(line)) for line in lines]
