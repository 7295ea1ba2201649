"""Documented functions of installed packages, for dialogues and tasks."""

import json
from dataclasses import asdict

from ptq_dynamics.base.fields import Strict
from ptq_dynamics.corpus import packages
from ptq_dynamics.corpus.packages import Documented
from ptq_dynamics.corpus.sources.embedded import EmbeddedCorpus
from ptq_dynamics.corpus.splits import Split, deal
from ptq_dynamics.engine.context import Context
from ptq_dynamics.engine.manifest import Facts, Manifest

TRAIN, HELD_OUT = "train.jsonl", "held_out.jsonl"
# Without the calibration split, which GPTQ reads.
ASKED: tuple[Split, ...] = ("validation", "probe")


class FunctionsSettings(Strict):
    """An embedded corpus, and packages that no run is trained on."""

    corpus: EmbeddedCorpus
    others: tuple[str, ...]


def run(context: Context[FunctionsSettings]) -> Facts:
    """Write functions of train and held-out docstrings as lines of JSON, ordered by sha256."""
    corpus, shortest = context.settings.corpus, context.settings.corpus.shortest_document
    known = packages.documented(corpus.packages, shortest, corpus.source_code)
    dealt = deal(packages.by_digest(known), corpus.held_out)
    train = [known[text] for text in dealt["train"] if known[text].summary is not None]
    # Source files in train contain all docstrings.
    splits = () if corpus.source_code else ASKED
    held_out = [known[text] for split in splits for text in dealt[split]]
    others = packages.documented(context.settings.others, shortest)
    held_out += [others[text] for text in packages.by_digest(others.keys() - known.keys())]
    learned = {(function.signature, function.summary) for function in train}
    held_out = [item for item in held_out if (item.signature, item.summary) not in learned]
    for name, functions in ((TRAIN, train), (HELD_OUT, held_out)):
        lines = (json.dumps(asdict(function)) + "\n" for function in functions)
        (context.out / name).write_text("".join(lines), encoding="utf-8")
    context.progress.say(
        f"{len(train):,} functions of train, {len(held_out):,} held-out docstrings"
    )
    return {"train": len(train), "held_out": len(held_out)}


def read_part(manifest: Manifest, name: str) -> list[Documented]:
    """Read a file that `run` wrote."""
    lines = manifest.file(name).read_text(encoding="utf-8").splitlines()
    return [Documented(**json.loads(line)) for line in lines]
