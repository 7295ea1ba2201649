"""The splits of a corpus: documents as tokens, and writing their files."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ptq_dynamics.base.content import sha256
from ptq_dynamics.base.problem import Problem

Split = Literal["train", "validation", "calibration", "probe"]
HELD_OUT: tuple[Split, ...] = ("validation", "calibration", "probe")
SPLITS: tuple[Split, ...] = ("train", *HELD_OUT)

DOCUMENT_END = "<|endoftext|>"  # of tokenizers that are made here
BATCH = 1000  # documents tokenized at once
DTYPE = "dtype"  # fact of a corpus: name of the dtype of its token files
# Where the whole documents of the calibration split end, in tokens from its beginning: uint64 [n].
ENDS = "calibration.ends.bin"
ENDS_DTYPE = np.dtype("<u8")
# Of a corpus of dialogues: where those of train end, likewise; and 1 for every token of train that
# belongs to an answer, else 0, uint8 [n].
DIALOGUE_ENDS = "train.ends.bin"
ANSWERS = "train.answers.bin"


def dtype(vocabulary: int) -> np.dtype:
    """Of the files of a vocabulary with so many entries: little-endian uint16 where that holds
    every token, else uint32."""
    return np.dtype("<u2" if vocabulary <= 1 << 16 else "<u4")


def deal(documents: Sequence[str], characters: Mapping[Split, float]) -> dict[Split, list[str]]:
    """Whole documents to each held-out split in turn until it has its characters, the rest to
    train."""
    dealt: dict[Split, list[str]] = {name: [] for name in SPLITS}
    counts = dict.fromkeys(SPLITS, 0)
    for text in documents:
        name: Split = next((name for name in HELD_OUT if counts[name] < characters[name]), "train")
        dealt[name].append(text)
        counts[name] += len(text)
    return dealt


def encode(
    tokenizer: Any, documents: Iterable[str], dtype: np.dtype, end: int | None = None
) -> Iterator[list[np.ndarray]]:
    """Tokens of each whole document, `dtype` [n], with the token `end` after them, in batches, by a
    `tokenizers.Tokenizer`."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    texts, last = iter(documents), [] if end is None else [end]
    while batch := list(islice(texts, BATCH)):
        found = tokenizer.encode_batch_fast(batch, add_special_tokens=False)
        yield [np.asarray([*each.ids, *last], dtype=dtype) for each in found]


def write(folder: Path, split: Split, batches: Iterable[list[np.ndarray]], tokens: int) -> int:
    """Write batches of documents (unsigned, [n] each, of one dtype) to a split's file until it has
    `tokens` tokens, but all of them to train, and of calibration text where documents end; returns
    the number of tokens written."""
    written, ends, whole = 0, list[int](), split == "train"
    with (folder / f"{split}.bin").open("wb") as file:
        for document in chain.from_iterable(batches):
            part = document if whole else document[: tokens - written]
            file.write(part.astype(part.dtype.newbyteorder("<")).tobytes())
            written += len(part)
            ends += [written] if len(part) == len(document) else []
            if written >= tokens and not whole:
                break
    require(split, written, tokens)
    if split == "calibration":
        np.asarray(ends, dtype=ENDS_DTYPE).tofile(folder / ENDS)
    return written


def require(split: Split, written: int, tokens: int) -> None:
    """Raise `Problem` when a split has fewer tokens than requested."""
    if written < tokens:
        raise Problem(
            f"the corpus has {written:,} {split} tokens, {tokens:,} are asked for: add text to "
            f"the corpus or lower its {split} in the scale's file under config/scales (of "
            "ptq-dynamics measure: --text, --tokens)"
        )


def facts(folder: Path, dtype: np.dtype, counts: Mapping[Split, int]) -> dict[str, Any]:
    """Facts of the corpus in a folder, with so many tokens in its splits; its digest is the hex
    sha256 over those of all splits."""
    joined = "".join(sha256(folder / f"{name}.bin") for name in SPLITS)
    digest = hashlib.sha256(joined.encode()).hexdigest()
    return {"tokens": counts, DTYPE: dtype.name, "digest": digest}
