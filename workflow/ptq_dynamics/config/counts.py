"""Counted tokens of embedded corpora. What is counted follows from settings and versions alone."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from ptq_dynamics.base.content import canonical
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.config.scale import Scale
from ptq_dynamics.corpus.sources import Derived
from ptq_dynamics.corpus.sources.embedded import EmbeddedCorpus
from ptq_dynamics.engine.machine import versions

FILE = "corpora.lock.json"
TOKENIZING = ("tokenizers", "transformers")


@dataclass(frozen=True)
class Counted:
    """The tokens of a train split, and the digest of what they were counted from."""

    text: str
    train: int


Counts = dict[str, dict[str, Counted]]  # by scale and corpus


def read_counts(path: Path) -> Counts:
    """Return the counts in a file; none if it is missing. Raises `Problem` if it is invalid."""
    try:
        return TypeAdapter(Counts).validate_json(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValidationError:
        raise Problem(f"{path} is not valid; restore it with git checkout {path}") from None


def texts(scale: Scale) -> dict[str, str]:
    """Return hex digests of settings and packages that decide the text, by embedded corpus."""
    digests = dict[str, str]()
    for name, corpus in scale.corpora.items():
        # That the other corpus exists is checked later.
        other = scale.corpora.get(corpus.of) if isinstance(corpus, Derived) else corpus
        if isinstance(other, EmbeddedCorpus):
            parts = [corpus] if other is corpus else [other, corpus]
            settings = [part.model_dump(mode="json", exclude={"train"}) for part in parts]
            packages = [package for part in settings for package in part.get("packages", ())]
            text = canonical([settings, versions(TOKENIZING, packages)])
            digests[name] = hashlib.sha256(text.encode()).hexdigest()
    return digests


def check_counts(scale: Scale, counts: Counts, place: str) -> None:
    """Raise `Problem` if a corpus trains on more tokens than were counted in the same text."""
    tokens = {
        counted.text: counted.train for known in counts.values() for counted in known.values()
    }
    for name, text in texts(scale).items():
        required, available = scale.corpora[name].train, tokens.get(text)
        if available is not None and available < required:
            raise Problem(
                f"{place}: corpora.{name}.train is {required:,}, but its text has {available:,} "
                "tokens; lower it, or add packages"
            )
