"""Settings of the stages that make a corpus, and the names of its splits; sizes in tokens."""

from dataclasses import dataclass
from typing import Literal

Split = Literal["train", "validation", "calibration", "probe"]
HELD_OUT: tuple[Split, ...] = ("validation", "calibration", "probe")
SPLITS: tuple[Split, ...] = ("train", *HELD_OUT)
Text = Literal["code", "tests", "descriptions"]


@dataclass(frozen=True)
class EmbeddedSettings:
    """Text of installed packages; held-out splits get `characters_per_token` characters a token."""

    packages: tuple[str, ...]
    source_code: bool
    shortest_document: int
    characters_per_token: float
    vocabulary: int
    sizes: dict[Split, int]


@dataclass(frozen=True)
class FunctionsSettings:
    """Functions and held-out documents of an embedded corpus, which gives every held-out split so
    many `characters`, and documents of `others`, packages that nothing is trained on."""

    packages: tuple[str, ...]
    source_code: bool
    shortest_document: int
    characters: dict[Split, float]
    others: tuple[str, ...]


@dataclass(frozen=True)
class MixSettings:
    """Other text of installed packages, at least `train` tokens of it: source files that are no
    tests, or are, without docstrings; or long descriptions and licences."""

    text: Text
    packages: tuple[str, ...]
    shortest_document: int
    train: int


@dataclass(frozen=True)
class DialoguesSettings:
    """A chat template, in Jinja as transformers takes it; a question with {signature} in it; and
    the least that there must be, in tokens."""

    template: str
    question: str
    train: int


@dataclass(frozen=True)
class Source:
    """A split of a data set of the hub, at the commit `revision`, or of a local folder: the
    documents in `field`, without the first `skip`."""

    path: str
    name: str | None
    data_files: str | None
    split: str
    revision: str | None
    field: str
    skip: int


@dataclass(frozen=True)
class DatasetsSettings:
    """Public data sets, tokenized with a public tokenizer."""

    tokenizer: str
    tokenizer_revision: str | None
    vocabulary: int
    sources: dict[Split, Source]
    sizes: dict[Split, int]
