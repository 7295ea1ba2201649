"""Sources of text: classes whose fields are the configuration of a corpus."""

import shutil
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from pydantic import Field

from ptq_dynamics.base import needs
from ptq_dynamics.base.fields import Count, Strict
from ptq_dynamics.corpus import splits
from ptq_dynamics.engine.context import Context
from ptq_dynamics.engine.manifest import Facts

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Packages = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]
Batches = Iterable[list[np.ndarray]]
SplitTexts = Mapping[splits.Split, Iterable[str]]


class Corpus(Strict):
    """At least `train` tokens to train on, a tokenizer, and held-out splits."""

    train: Count

    @abstractmethod
    def write(self, context: Context[object]) -> Facts:
        """Write tokenizer/ and the files of all splits; return their facts."""


class WholeCorpus(Corpus):
    """A tokenizer and text, with sizes in tokens."""

    vocabulary: Annotated[int, Field(ge=257, le=1 << 32)]
    validation: Count
    calibration: Count
    probe: Count

    @property
    @abstractmethod
    def tokenized(self) -> tuple[object, ...]:
        """A key that is equal for corpora with one tokenizer."""

    @property
    def sizes(self) -> dict[splits.Split, int]:
        """Tokens of each split."""
        return {split: getattr(self, split) for split in splits.SPLITS}

    def write_splits(
        self,
        folder: Path,
        tokenizer: "Tokenizer",
        texts: SplitTexts,
        end: int | None = 0,
        train: int = 0,
    ) -> Facts:
        """Write splits, with the token `end` after documents of train (or a written `train`)."""
        dtype, counts = splits.dtype(self.vocabulary), {"train": train}
        for name, documents in texts.items():
            encoded = splits.encode(tokenizer, documents, dtype, end if name == "train" else None)
            counts[name] = splits.save_split(folder, name, encoded, self.sizes[name])
        return splits.split_facts(folder, dtype, counts)


class Derived(Corpus):
    """Other text to train on, with tokenizer and held-out splits of the embedded corpus `of`."""

    from_functions: ClassVar[bool] = False

    of: str

    def write(self, context: Context[object]) -> Facts:
        """Write train, and copy tokenizer and held-out splits."""
        corpus = context.input(needs.CORPUS)
        for name in corpus.files.keys() - {"train.bin"}:
            (context.out / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(corpus.file(name), context.out / name)
        dtype = np.dtype(corpus.facts[splits.DTYPE])
        documents, about = self.documents(context, dtype)
        count = splits.save_split(context.out, "train", documents, self.train)
        counts = {**corpus.facts["tokens"], "train": count}
        return {**about, **splits.split_facts(context.out, dtype, counts)}

    @abstractmethod
    def documents(self, context: Context[object], dtype: np.dtype) -> tuple[Batches, Facts]:
        """Return batches of train's documents as tokens, `dtype` [n] each; and facts about them."""
