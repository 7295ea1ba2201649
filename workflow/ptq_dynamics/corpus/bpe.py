"""A byte-level BPE trained on the corpus itself, and documents as its tokens."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tokenizers import Tokenizer

END = "<|endoftext|>"


def train_tokenizer(documents: Iterable[str], vocabulary: int) -> "Tokenizer":
    """Byte-level BPE with `vocabulary` entries, the end-of-document token first."""
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
    tokenizer: "Tokenizer", documents: Sequence[str], dtype: np.dtype, end: bool
) -> Iterator[np.ndarray]:
    """Tokens of each document, `dtype` [n]; with `end`, the end-of-document token after each.

    Held-out text has no special tokens (section 2).
    """
    last = [tokenizer.token_to_id(END)] if end else []
    for start in range(0, len(documents), 1000):
        batch = tokenizer.encode_batch(documents[start : start + 1000], add_special_tokens=False)
        for encoding in batch:
            yield np.asarray(encoding.ids + last, dtype=dtype)


def save_tokenizer(tokenizer: "Tokenizer", folder: Path) -> None:
    """Write the tokenizer as any Hugging Face tool reads it."""
    from transformers import PreTrainedTokenizerFast

    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, bos_token=END)
    fast.save_pretrained(folder)
