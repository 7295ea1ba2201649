"""A mix: other text of installed packages, for runs that go on from those on an embedded corpus.
Only train is its own, so such a run is measured on the very text that its trunk is measured on."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import Distribution, PackagePath
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ptq_dynamics.base.fields import Count
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.corpus import bpe, docstrings, packages, splits
from ptq_dynamics.corpus.sources import Derived, Packages
from ptq_dynamics.engine.context import Context

Text = Literal["code", "tests", "descriptions"]
METADATA = "METADATA"


class MixCorpus(Derived):
    """Text of installed packages: source files that are no tests, or are, without docstrings; or
    long descriptions and licences."""

    source: Literal["mix"]
    text: Text
    packages: Packages
    shortest_document: Count

    def write(self, context: Context[Any]) -> Mapping[str, Any]:
        """Write train's token file, and copy all else of the corpus that it is a mix of."""
        from tokenizers import Tokenizer

        whole = context.input("corpus")
        splits.copy_held_out(whole, context.out)
        documents = collect(self.text, self.packages, self.shortest_document)
        tokenizer = Tokenizer.from_file(str(context.out / "tokenizer/tokenizer.json"))
        dtype = np.dtype(whole.facts[splits.DTYPE])
        encoded = bpe.encode(tokenizer, documents, dtype, tokenizer.token_to_id(bpe.END))
        count = splits.write(context.out, "train", encoded, self.train, whole=True)
        counts = {**whole.facts["tokens"], "train": count}
        about = packages.facts(documents, self.packages)
        return {**about, **splits.facts(context.out, dtype, counts)}


def collect(text: Text, names: Sequence[str], shortest: int) -> list[str]:
    """Distinct documents of at least `shortest` characters, ordered by their sha256."""
    select, read = TEXTS[text]
    files = []
    for name in names:
        found = packages.installed_files(name, select)
        if not found:
            raise Problem(f"package {name!r} of the corpus has no {text}; remove it")
        files += found
    return packages.distinct_documents(files, read, shortest)


_TEST = re.compile(r"(.*/)?(tests?/.*|test_[^/]*|[^/]*_test\.py|conftest\.py)")


def _sources(distribution: Distribution, tests: bool) -> list[PackagePath]:
    files = packages.python_files(distribution)
    return [file for file in files if bool(_TEST.fullmatch(file.as_posix())) == tests]


def _about_files(distribution: Distribution) -> list[PackagePath]:
    named = {METADATA, *(distribution.metadata.get_all("License-File") or ())}
    return [
        file
        for file in distribution.files or []
        if file.parts[0].endswith(".dist-info")
        and (file.parts[1] == "licenses" or "/".join(file.parts[1:]) in named)
    ]


def _code(file: Path) -> list[str]:
    return [docstrings.taken_out(file).strip("\n")]


def _about(file: Path) -> list[str]:
    text = packages.text_of(file)
    # The long description: what stands below the headers.
    return [(text.partition("\n\n")[2] if file.name == METADATA else text).strip()]


TEXTS: Mapping[Text, tuple[packages.Selection, Callable[[Path], list[str]]]] = {
    "code": (partial(_sources, tests=False), _code),
    "tests": (partial(_sources, tests=True), _code),
    "descriptions": (_about_files, _about),
}
