"""A byte-level BPE trained on the corpus itself, and documents as its tokens."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np

END = "<|endoftext|>"
BATCH = 1000  # documents tokenized at once


def train_tokenizer(documents: Iterable[str], vocabulary: int) -> Any:
    """A `tokenizers.Tokenizer`, byte-level BPE, with the end-of-document token first."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    return tokenizer


def encode(
    tokenizer: Any, documents: Iterable[str], dtype: np.dtype, end: int | None = None
) -> Iterator[list[np.ndarray]]:
    """Tokens of each document, `dtype` [n], with the token `end` after them, in batches."""
    texts, last = iter(documents), [] if end is None else [end]
    while batch := list(islice(texts, BATCH)):
        found = tokenizer.encode_batch_fast(batch, add_special_tokens=False)
        yield [np.asarray([*each.ids, *last], dtype=dtype) for each in found]
