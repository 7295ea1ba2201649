"""The embedded corpus: text that every installation has, as token files.

Documents are the docstrings (and, with `source_code`, the source files) of pinned, purely Python
distributions, ordered by digest. A byte-level BPE is trained on the train documents.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

from ptq_dynamics.base.fields import Count, Rate
from ptq_dynamics.corpus import bpe, docstrings, packages, splits
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
        from transformers import PreTrainedTokenizerFast

        read = partial(docstrings.texts, whole=self.source_code)
        documents = packages.documents(self.packages, read, self.shortest_document)
        dealt = splits.deal(documents, self.held_out)
        tokenizer = bpe.train_tokenizer(dealt["train"], self.vocabulary)
        special = {"eos_token": bpe.END, "bos_token": bpe.END}
        fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
        fast.save_pretrained(context.out / "tokenizer")
        dtype, counts = splits.dtype(self.vocabulary), {}
        for name, size in self.sizes.items():
            end = tokenizer.token_to_id(bpe.END) if name == "train" else None
            encoded = bpe.encode(tokenizer, dealt[name], dtype, end)
            counts[name] = splits.write(context.out, name, encoded, size)
        about = packages.facts(documents, self.packages)
        return {**about, **splits.facts(context.out, dtype, counts)}
