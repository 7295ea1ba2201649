"""Kinds of corpus in config/scales/SCALE.yaml, one class each."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from ptq_dynamics.base.fields import Count, Rate, Strict
from ptq_dynamics.hub.files import COMMIT


class EmbeddedCorpus(Strict):
    """Text of installed packages; sizes in tokens."""

    source: Literal["embedded"]
    packages: Annotated[list[str], Field(min_length=1)]
    source_code: bool
    shortest_document: Count
    characters_per_token: Rate
    vocabulary: Annotated[int, Field(ge=257, le=1 << 32)]
    train: Count
    validation: Count
    calibration: Count
    probe: Count

    @property
    def tokenized(self) -> tuple[object, ...]:
        """What two corpora have alike whose tokens mean the same: the tokenizer is trained on what
        the held-out splits leave of the text."""
        text = (self.source, tuple(self.packages), self.source_code, self.shortest_document)
        held_out = (self.validation, self.calibration, self.probe)
        return (*text, self.characters_per_token, self.vocabulary, *held_out)


def _asks(question: str) -> str:
    try:
        said = question.format(signature="f(x)")
    except (KeyError, IndexError, ValueError, AttributeError, TypeError) as error:
        raise ValueError(f"must have {{signature}} and no other braces ({error})") from None
    if "f(x)" not in said:
        raise ValueError("must have {signature} where the function is named")
    return question


def _check_pin(name: str, revision: str | None) -> None:
    # What is no path is a repository of the hub, whose branches move.
    if name.startswith(("/", "./", "../")):
        if revision:
            raise ValueError(f"{name} is a local folder, which has no revision; remove it")
    elif not COMMIT.fullmatch(revision or ""):
        raise ValueError(
            f"pins {name} to {revision or 'nothing'}, and must be a full commit id, 40 hexadecimal "
            f"digits: the top one of https://huggingface.co/{name}/commits/main, datasets/ before "
            "the name of a data set; a local folder, which needs none, begins with / or ./"
        )


class DatasetSource(Strict):
    """A data set as `datasets.load_dataset` lays it out, in Parquet or JSON Lines: a repository of
    the hub at the commit `revision`, or a local folder."""

    path: str
    name: str | None = None
    data_files: str | None = None
    split: str = "train"
    revision: str | None = None
    field: str = "text"
    skip: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _pinned(self) -> "DatasetSource":
        _check_pin(self.path, self.revision)
        return self


class DatasetsCorpus(Strict):
    """Splits from public data sets with a public tokenizer; sizes in tokens."""

    source: Literal["datasets"]
    tokenizer: str
    tokenizer_revision: str | None = None
    vocabulary: Annotated[int, Field(ge=257, le=1 << 32)]
    train_from: DatasetSource
    validation_from: DatasetSource
    calibration_from: DatasetSource
    probe_from: DatasetSource
    train: Count
    validation: Count
    calibration: Count
    probe: Count

    @model_validator(mode="after")
    def _pinned(self) -> "DatasetsCorpus":
        _check_pin(self.tokenizer, self.tokenizer_revision)
        return self

    @property
    def tokenized(self) -> tuple[object, ...]:
        """What two corpora have alike whose tokens mean the same."""
        return self.source, self.tokenizer, self.tokenizer_revision, self.vocabulary


class Derived(Strict):
    """Other text to train on, at least `train` tokens, with the tokenizer and the held-out splits
    of the embedded corpus `of`."""

    of: str
    train: Count


class MixCorpus(Derived):
    """Text of installed packages: source files that are no tests, or are, without docstrings; or
    long descriptions and licences."""

    source: Literal["mix"]
    text: Literal["code", "tests", "descriptions"]
    packages: Annotated[list[str], Field(min_length=1)]
    shortest_document: Count


class DialoguesCorpus(Derived):
    """Questions about the functions that `of` trains on, each a `question` with {signature} in it,
    and answers, the first sentences of their docstrings, written by a chat `template` (Jinja, as
    transformers takes it)."""

    source: Literal["dialogues"]
    template: Annotated[str, Field(min_length=1)]
    question: Annotated[str, AfterValidator(_asks)]


# A tokenizer and the text it was made for, or made from.
WholeCorpus = EmbeddedCorpus | DatasetsCorpus
Corpus = Annotated[
    EmbeddedCorpus | DatasetsCorpus | MixCorpus | DialoguesCorpus, Field(discriminator="source")
]
