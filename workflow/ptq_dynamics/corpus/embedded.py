"""The embedded corpus: text that every installation has, as token files.

Documents are the docstrings (and, where a scale asks for it, the source files) of pinned, purely
Python distributions (see `packages`). They are deduplicated, ordered by digest, and dealt to the
splits validation, calibration and probe until each has enough; train has the rest. A byte-level BPE
is trained on the train documents.
"""

import importlib.metadata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from ptq_dynamics.corpus import docstrings, splits
from ptq_dynamics.corpus.packages import (
    distinct_documents,
    installed_files,
    python_files,
    text_of,
)
from ptq_dynamics.corpus.settings import HELD_OUT, SPLITS, EmbeddedSettings, Split
from ptq_dynamics.engine.context import Context

END = "<|endoftext|>"


def run(context: Context[EmbeddedSettings]) -> Mapping[str, Any]:
    """Write tokenizer/ and one token file a split; facts: sizes and digests."""
    settings, sizes = context.settings, context.settings.sizes
    documents = collect(settings.packages, settings.source_code, settings.shortest_document)
    characters = sum(map(len, documents))
    context.progress.say(f"{len(documents):,} documents, {characters:,} characters")
    dealt = deal(documents, held_out(settings))
    tokenizer = train_tokenizer(dealt["train"], settings.vocabulary)
    save_tokenizer(tokenizer, context.out / "tokenizer")
    dtype = splits.dtype(settings.vocabulary)
    counts = {}
    for name in SPLITS:
        train = name == "train"
        encoded = encode(tokenizer, dealt[name], dtype, end=train)
        counts[name] = splits.write(context.out, name, encoded, sizes[name], whole=train)
    return {
        "documents": len(documents),
        "characters": sum(map(len, documents)),
        "tokens": counts,
        splits.DTYPE: dtype.name,
        "packages": {name: importlib.metadata.version(name) for name in settings.packages},
        "digest": splits.digest(context.out),
    }


def collect(packages: Sequence[str], source_code: bool, shortest: int) -> list[str]:
    """Distinct documents of at least `shortest` characters, ordered by their sha256."""
    files = [file for package in packages for file in installed_files(package, python_files)]
    read = _docstrings_and_source if source_code else docstrings.read
    return distinct_documents(files, read, shortest)


def _docstrings_and_source(file: Path) -> list[str]:
    return [*docstrings.read(file), text_of(file)]


def held_out(settings: EmbeddedSettings) -> dict[Split, float]:
    """Characters that each held-out split gets."""
    return {name: settings.sizes[name] * settings.characters_per_token for name in HELD_OUT}


def deal(documents: Sequence[str], characters: Mapping[Split, float]) -> dict[Split, list[str]]:
    """Whole documents to each held-out split in turn until it has its characters, the rest to
    train."""
    dealt: dict[Split, list[str]] = {name: [] for name in SPLITS}
    counts = dict.fromkeys(SPLITS, 0)
    for text in documents:
        short = (name for name in HELD_OUT if counts[name] < characters[name])
        name: Split = next(short, "train")
        dealt[name].append(text)
        counts[name] += len(text)
    return dealt


def train_tokenizer(documents: Iterable[str], vocabulary: int) -> Tokenizer:
    """Byte-level BPE with `vocabulary` entries, the end-of-document token first."""
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
    tokenizer: Tokenizer, documents: Sequence[str], dtype: np.dtype, end: bool
) -> Iterator[np.ndarray]:
    """Tokens of each document, `dtype` [n]; with `end`, the end-of-document token after each.

    Held-out text has no special tokens (section 2).
    """
    last = [tokenizer.token_to_id(END)] if end else []
    for start in range(0, len(documents), 1000):
        batch = tokenizer.encode_batch(documents[start : start + 1000], add_special_tokens=False)
        for encoding in batch:
            yield np.asarray(encoding.ids + last, dtype=dtype)


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write the tokenizer as any Hugging Face tool reads it."""
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, bos_token=END)
    fast.save_pretrained(folder)
