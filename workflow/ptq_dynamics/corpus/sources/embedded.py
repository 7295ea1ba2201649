"""The embedded corpus: text that every installation has, as token files.

Documents are the docstrings (and, where a scale has `source_code`, the source files) of pinned,
purely Python distributions (see `packages`). They are deduplicated, ordered by digest, and dealt to
the splits validation, calibration and probe until each has enough; train has the rest. A byte-level
BPE is trained on the train documents.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ptq_dynamics.base.fields import Count, Rate
from ptq_dynamics.corpus import docstrings, splits
from ptq_dynamics.corpus.bpe import encode, save_tokenizer, train_tokenizer
from ptq_dynamics.corpus.packages import (
    distinct_documents,
    installed_files,
    python_files,
    text_of,
    versions,
)
from ptq_dynamics.corpus.sources import Packages, WholeCorpus
from ptq_dynamics.corpus.splits import HELD_OUT, Split
from ptq_dynamics.engine.context import Context


class EmbeddedCorpus(WholeCorpus):
    """Text of installed packages; held-out splits get `characters_per_token` characters a token."""

    source: Literal["embedded"]
    packages: Packages
    source_code: bool
    shortest_document: Count
    characters_per_token: Rate

    @property
    def tokenized(self) -> tuple[object, ...]:
        """The tokenizer is trained on what the held-out splits leave of the text."""
        return tuple(self.model_dump(exclude={"train"}).items())

    @property
    def held_out(self) -> dict[Split, float]:
        """Characters that each held-out split gets."""
        return {name: self.sizes[name] * self.characters_per_token for name in HELD_OUT}

    def write(self, context: Context[Any]) -> Mapping[str, Any]:
        """Train the tokenizer, and write all splits."""
        documents = collect(self.packages, self.source_code, self.shortest_document)
        characters = sum(map(len, documents))
        context.progress.say(f"{len(documents):,} documents, {characters:,} characters")
        dealt = splits.deal(documents, self.held_out)
        tokenizer = train_tokenizer(dealt["train"], self.vocabulary)
        save_tokenizer(tokenizer, context.out / "tokenizer")
        dtype = splits.dtype(self.vocabulary)
        counts = {}
        for name, size in self.sizes.items():
            train = name == "train"
            encoded = encode(tokenizer, dealt[name], dtype, end=train)
            counts[name] = splits.write(context.out, name, encoded, size, whole=train)
        return {
            "documents": len(documents),
            "characters": characters,
            "tokens": counts,
            splits.DTYPE: dtype.name,
            "packages": versions(self.packages),
            "digest": splits.digest(context.out),
        }


def collect(packages: Sequence[str], source_code: bool, shortest: int) -> list[str]:
    """Distinct documents of at least `shortest` characters, ordered by their sha256."""
    files = [file for package in packages for file in installed_files(package, python_files)]
    read = _docstrings_and_source if source_code else docstrings.read
    return distinct_documents(files, read, shortest)


def _docstrings_and_source(file: Path) -> list[str]:
    return [*docstrings.read(file), text_of(file)]
