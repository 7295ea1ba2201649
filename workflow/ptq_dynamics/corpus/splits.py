"""The splits of a corpus: documents as tokens, and their files."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from ptq_dynamics.base.content import sha256
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.manifest import Facts

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Split = Literal["train", "validation", "calibration", "probe"]
VALIDATION = "validation.bin"
HELD_OUT: tuple[Split, ...] = ("validation", "calibration", "probe")
SPLITS: tuple[Split, ...] = ("train", *HELD_OUT)

DOCUMENT_END = "<|endoftext|>"  # of trained tokenizers
BATCH = 1000  # documents tokenized at once
DTYPE = "dtype"  # fact of a corpus: dtype of its token files
BEGIN = "begin"  # fact of a corpus: tokens with which each block begins, if any
# Positions in tokens where whole documents of the calibration split end, uint64 [n].
ENDS = "calibration.ends.bin"
ENDS_DTYPE = np.dtype("<u8")
# Positions where dialogues of train end, uint64 [n]; marks of its tokens, 1 in answers, uint8 [n].
DIALOGUE_ENDS, ANSWERS = "train.ends.bin", "train.answers.bin"


def dtype(vocabulary: int) -> np.dtype:
    """Return the dtype of token files: little-endian uint16 if the vocabulary fits, else uint32."""
    return np.dtype("<u2" if vocabulary <= 1 << 16 else "<u4")


def deal(documents: Iterable[str], characters: Mapping[Split, float]) -> dict[Split, list[str]]:
    """Give documents to each held-out split until it has its characters; the rest goes to train."""
    dealt: dict[Split, list[str]] = {name: [] for name in SPLITS}
    counts = dict.fromkeys(SPLITS, 0)
    for text in documents:
        name: Split = next((name for name in HELD_OUT if counts[name] < characters[name]), "train")
        dealt[name].append(text)
        counts[name] += len(text)
    return dealt


def cut(
    documents: Iterable[np.ndarray], sizes: Mapping[Split, int]
) -> dict[Split, list[np.ndarray]]:
    """Return consecutive splits of documents as tokens, [n] each, as far as there are tokens. The
    rest of the last document of a split begins the next one."""
    parts: dict[Split, list[np.ndarray]] = {name: [] for name in sizes}
    texts, rest = filter(len, documents), np.empty(0)
    for name, size in sizes.items():
        while size and len(rest := rest if len(rest) else next(texts, rest)):
            part, rest = rest[:size], rest[size:]
            parts[name].append(part)
            size -= len(part)
    return parts


def encode(
    tokenizer: "Tokenizer", documents: Iterable[str], dtype: np.dtype, end: int | None = None
) -> Iterator[list[np.ndarray]]:
    """Yield batches of documents as tokens, `dtype` [n] each, with the token `end` after each."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    texts, last = iter(documents), [] if end is None else [end]
    while batch := list(islice(texts, BATCH)):
        encodings = tokenizer.encode_batch_fast(batch, add_special_tokens=False)
        yield [np.asarray([*encoding.ids, *last], dtype=dtype) for encoding in encodings]


def save_split(folder: Path, split: Split, batches: Iterable[list[np.ndarray]], tokens: int) -> int:
    """Write `tokens` tokens of a split (all of train), and return their number."""
    written, ends, is_train = 0, list[int](), split == "train"
    with (folder / f"{split}.bin").open("wb") as file:
        for document in chain.from_iterable(batches):
            part = document if is_train else document[: tokens - written]
            file.write(part.astype(part.dtype.newbyteorder("<")).tobytes())
            written += len(part)
            ends += [written] if len(part) == len(document) else []
            if written >= tokens and not is_train:
                break
    require_tokens(split, written, tokens)
    if split == "calibration":
        np.asarray(ends, dtype=ENDS_DTYPE).tofile(folder / ENDS)
    return written


def require_tokens(split: Split, written: int, tokens: int) -> None:
    """Raise `Problem` if a split has too few tokens."""
    if written < tokens:
        raise Problem(
            f"the corpus has {written:,} {split} tokens, but {tokens:,} are required: add text to "
            f"the corpus or lower its {split} in the scale's file under config/scales (with "
            "ptq-dynamics measure: --text, --tokens)"
        )


def split_facts(folder: Path, dtype: np.dtype, counts: Mapping[str, int]) -> Facts:
    """Return the facts of a corpus; its digest is the hex sha256 of those of all splits."""
    joined = "".join(sha256(folder / f"{name}.bin") for name in SPLITS)
    digest = hashlib.sha256(joined.encode()).hexdigest()
    return {"tokens": counts, DTYPE: dtype.name, "digest": digest}
