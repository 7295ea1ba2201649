"""Sources of text, one module each: the configuration of a corpus in config/scales/SCALE.yaml, and
how its files are made."""

import shutil
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from ptq_dynamics.base.fields import Count, Strict
from ptq_dynamics.corpus import splits
from ptq_dynamics.engine.context import Context

Packages = Annotated[tuple[str, ...], Field(min_length=1)]


class Corpus(Strict):
    """Text to train on, at least `train` tokens, with a tokenizer and held-out splits."""

    train: Count

    @abstractmethod
    def write(self, context: Context[Any]) -> Mapping[str, Any]:
        """Write tokenizer/ and one token file a split; facts: sizes and digests."""


class WholeCorpus(Corpus):
    """A tokenizer and the text it was made for, or made from; sizes in tokens."""

    vocabulary: Annotated[int, Field(ge=257, le=1 << 32)]
    validation: Count
    calibration: Count
    probe: Count

    @property
    @abstractmethod
    def tokenized(self) -> tuple[object, ...]:
        """What two corpora have alike whose tokens mean the same."""

    @property
    def sizes(self) -> dict[splits.Split, int]:
        """Tokens of each split."""
        return {split: getattr(self, split) for split in splits.SPLITS}


class Derived(Corpus):
    """Other text to train on, at least `train` tokens, with the tokenizer and the held-out splits
    of the embedded corpus `of`."""

    # Whether it reads what the stage `corpus.functions` finds in that corpus.
    from_functions: ClassVar[bool] = False

    of: str

    def write(self, context: Context[Any]) -> Mapping[str, Any]:
        """Write train's token file, and copy all else, tokenizer and held-out text."""
        whole = context.input("corpus")
        for name in whole.files.keys() - {"train.bin"}:
            (context.out / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(whole.file(name), context.out / name)
        dtype = np.dtype(whole.facts[splits.DTYPE])
        documents, about = self.documents(context, dtype)
        count = splits.write(context.out, "train", documents, self.train)
        counts = {**whole.facts["tokens"], "train": count}
        return {**about, **splits.facts(context.out, dtype, counts)}

    @abstractmethod
    def documents(
        self, context: Context[Any], dtype: np.dtype
    ) -> tuple[Iterable[list[np.ndarray]], Mapping[str, Any]]:
        """Tokens of train's documents, `dtype` [n] each, in batches; and facts about them."""
