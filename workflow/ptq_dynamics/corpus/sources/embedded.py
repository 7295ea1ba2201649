"""The embedded corpus: docstrings and source files of pinned packages, with a byte-level BPE."""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Literal

from ptq_dynamics.base.fields import Count, Rate
from ptq_dynamics.corpus import packages, splits
from ptq_dynamics.corpus.sources import Packages, WholeCorpus
from ptq_dynamics.engine.context import Context
from ptq_dynamics.engine.manifest import Facts

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class EmbeddedCorpus(WholeCorpus):
    """Text of installed packages; held-out splits get `characters_per_token` characters a token."""

    source: Literal["embedded"]
    packages: Packages
    source_code: bool
    shortest_document: Count
    characters_per_token: Rate

    @property
    def tokenized(self) -> tuple[object, ...]:
        """All settings but `train`, since the tokenizer is trained on this text."""
        return tuple(self.model_dump(exclude={"train"}).items())

    @property
    def held_out(self) -> dict[splits.Split, float]:
        """Characters of each held-out split."""
        return {name: self.sizes[name] * self.characters_per_token for name in splits.HELD_OUT}

    def split_texts(self) -> Mapping[splits.Split, list[str]]:
        """Return the documents of each split."""
        documents = packages.documented(self.packages, self.shortest_document, self.source_code)
        return splits.deal(packages.by_digest(documents), self.held_out)

    def write(self, context: Context[object]) -> Facts:
        """Train the tokenizer, and write all splits."""
        from transformers import PreTrainedTokenizerFast

        dealt = self.split_texts()
        tokenizer = train_tokenizer(dealt["train"], self.vocabulary)
        special = dict.fromkeys(("eos_token", "bos_token"), splits.DOCUMENT_END)
        fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
        fast.save_pretrained(context.out / "tokenizer")
        end = tokenizer.token_to_id(splits.DOCUMENT_END)
        about = packages.package_facts([*chain(*dealt.values())], self.packages)
        return {**about, **self.write_splits(context.out, tokenizer, dealt, end)}


def train_tokenizer(documents: Iterable[str], vocabulary: int) -> "Tokenizer":
    """Train a byte-level BPE (`tokenizers.Tokenizer`) with the end-of-document token first."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[splits.DOCUMENT_END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    return tokenizer
