"""The splits of a corpus, and writing their token files."""

import hashlib
import shutil
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ptq_dynamics.base.content import sha256
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.engine.manifest import Manifest

Split = Literal["train", "validation", "calibration", "probe"]
HELD_OUT: tuple[Split, ...] = ("validation", "calibration", "probe")
SPLITS: tuple[Split, ...] = ("train", *HELD_OUT)

DTYPE = "dtype"  # fact of a corpus: name of the dtype of its token files
# Where the whole documents of the calibration split end, in tokens from its beginning: uint64 [n].
ENDS = "calibration.ends.bin"
ENDS_DTYPE = np.dtype("<u8")


def dtype(vocabulary: int) -> np.dtype:
    """Of the files of a vocabulary with so many entries: little-endian uint16 where that holds
    every token, else uint32."""
    return np.dtype("<u2" if vocabulary <= 1 << 16 else "<u4")


def file_name(split: Split) -> str:
    """File of a split's tokens."""
    return f"{split}.bin"


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


def write(
    folder: Path, split: Split, batches: Iterable[list[np.ndarray]], tokens: int, *, whole: bool
) -> int:
    """Write batches of documents (unsigned, [n] each, of one dtype) to a split's file until it has
    `tokens` tokens, or with `whole` all of them, and of calibration text where documents end;
    returns the number of tokens written."""
    written, ends = 0, []
    with (folder / file_name(split)).open("wb") as file:
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


def copy_held_out(whole: Manifest, folder: Path) -> None:
    """Copy all of a corpus but its train split: tokenizer and held-out text, byte for byte."""
    for name in whole.files.keys() - {file_name("train")}:
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(whole.file(name), folder / name)


def require(split: Split, written: int, tokens: int) -> None:
    """Raise `Problem` when a split has fewer tokens than requested."""
    if written < tokens:
        raise Problem(
            f"the corpus has {written:,} {split} tokens, {tokens:,} are asked for: add text to "
            f"the corpus or lower its {split} in the scale's file under config/scales"
        )


def facts(folder: Path, dtype: np.dtype, counts: Mapping[Split, int]) -> dict[str, Any]:
    """Facts of the corpus in a folder, with so many tokens in its splits."""
    return {"tokens": counts, DTYPE: dtype.name, "digest": digest(folder)}


def digest(folder: Path) -> str:
    """Hex sha256 over the digests of all splits: one value that names the corpus."""
    joined = "".join(sha256(folder / file_name(name)) for name in SPLITS)
    return hashlib.sha256(joined.encode()).hexdigest()
