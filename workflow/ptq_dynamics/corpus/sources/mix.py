"""Other text of installed packages, for branches of runs on an embedded corpus."""

import re
from importlib.metadata import Distribution, PackagePath
from itertools import chain
from pathlib import Path
from typing import Literal

import numpy as np

from ptq_dynamics.base.fields import Count
from ptq_dynamics.corpus import packages, splits
from ptq_dynamics.corpus.sources import Batches, Derived, Packages
from ptq_dynamics.engine.context import Context
from ptq_dynamics.engine.manifest import Facts

Text = Literal["code", "tests", "descriptions"]
METADATA = "METADATA"
_TEST = re.compile(r"(.*/)?(tests?/.*|test_[^/]*|[^/]*_test\.py|conftest\.py)")


class MixCorpus(Derived):
    """Text of packages: source without docstrings, or long descriptions and licences."""

    source: Literal["mix"]
    text: Text
    packages: Packages
    shortest_document: Count

    def documents(self, context: Context[object], dtype: np.dtype) -> tuple[Batches, Facts]:
        """Return documents with the end-of-document token."""
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(context.out / "tokenizer/tokenizer.json"))
        documents = self.texts()
        end = tokenizer.token_to_id(splits.DOCUMENT_END)
        encoded = splits.encode(tokenizer, documents, dtype, end)
        return encoded, packages.package_facts(documents, self.packages)

    def texts(self) -> list[str]:
        """Return distinct documents ordered by sha256."""
        files = (packages.installed_files(name, self._select) for name in self.packages)
        documents = set(map(self._read, chain.from_iterable(files)))
        return packages.by_digest(text for text in documents if len(text) >= self.shortest_document)

    def _select(self, distribution: Distribution) -> list[PackagePath]:
        if self.text != "descriptions":
            wanted, files = self.text == "tests", packages.python_files(distribution)
            return [file for file in files if bool(_TEST.fullmatch(file.as_posix())) == wanted]
        named = {METADATA, *(distribution.metadata.get_all("License-File") or ())}
        return [
            file
            for file in distribution.files or []
            if file.parts[0].endswith(".dist-info")
            and (file.parts[1] == "licenses" or "/".join(file.parts[1:]) in named)
        ]

    def _read(self, file: Path) -> str:
        if self.text != "descriptions":
            return packages.taken_out(file).strip("\n")
        text = file.read_text(encoding="utf-8")
        return (text.partition("\n\n")[2] if file.name == METADATA else text).strip()
