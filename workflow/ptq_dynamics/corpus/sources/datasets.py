"""A corpus from public data sets with a public tokenizer (section 4): what scale paper uses.

Every split names a data set and how many of its tokens are taken, from its first document on or
after some; validation and probe may so come from one data set.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from ptq_dynamics.base.content import write_atomically
from ptq_dynamics.base.fields import Strict
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.corpus import splits
from ptq_dynamics.corpus.sources import WholeCorpus
from ptq_dynamics.engine.context import Context
from ptq_dynamics.hub.files import COMMIT

if TYPE_CHECKING:
    from datasets import IterableDataset
    from transformers import PreTrainedTokenizerBase

BATCH = 1000  # documents tokenized at once, by as many threads as there are cores
NOTE_EVERY = 10.0  # seconds
LOCAL = ("/", "./", "../")


def _check_pin(name: str, revision: str | None) -> None:
    # What is no path is a repository of the hub, whose branches move.
    if name.startswith(LOCAL):
        if revision:
            raise ValueError(f"{name} is a local folder, which has no revision; remove it")
    elif not COMMIT.fullmatch(revision or ""):
        raise ValueError(
            f"pins {name} to {revision or 'nothing'}, and must be a full commit id, 40 hexadecimal "
            f"digits: the top one of https://huggingface.co/{name}/commits/main, datasets/ before "
            "the name of a data set; a local folder, which needs none, begins with / or ./"
        )


class DatasetSource(Strict):
    """A data set as `datasets.load_dataset` lays it out, in Parquet or JSON Lines: a repository of
    the hub at the commit `revision`, or a local folder; the documents are in `field`, and the first
    `skip` are left out."""

    path: str
    name: str | None = None
    data_files: str | None = None
    split: str = "train"
    revision: str | None = None
    field: str = "text"
    skip: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _pinned(self) -> "DatasetSource":
        _check_pin(self.path, self.revision)
        return self

    def open(self) -> "IterableDataset":
        """Its documents, in the order of its files and of the rows in them, as they are read.

        Raises `Problem` when there is no such data set, configuration or split.
        """
        from datasets import load_dataset

        about = self.model_dump(exclude={"field", "skip"})
        try:
            found: IterableDataset = load_dataset(**about, streaming=True)
        except (OSError, ValueError) as error:
            raise Problem(f"data set {self.path} cannot be read: {_reason(error)}") from error
        return found.skip(self.skip)

    def texts(self, documents: "IterableDataset") -> Iterator[str]:
        """The text of each document.

        Raises `Problem` when it cannot be read, after the library's own retries, or is no text.
        """
        try:
            for row in documents:
                if not isinstance(row.get(self.field), str):
                    raise Problem(
                        f"data set {self.path} has a row whose {self.field!r} is no text; set "
                        f"field (there are: {', '.join(row)})"
                    )
                yield row[self.field]
        except (OSError, ValueError, RuntimeError) as error:
            raise Problem(
                f"data set {self.path} cannot be read: {_reason(error)}; run the same command "
                "again to go on"
            ) from error


class DatasetsCorpus(WholeCorpus):
    """Splits from public data sets with a public tokenizer; sizes in tokens. The corpus of a public
    family trains nothing, and the lock pins its tokenizer."""

    from_network: ClassVar[bool] = True

    source: Literal["datasets"]
    train: Annotated[int, Field(ge=0)]
    tokenizer: str
    tokenizer_revision: str | None = None
    train_from: DatasetSource
    validation_from: DatasetSource
    calibration_from: DatasetSource
    probe_from: DatasetSource

    @model_validator(mode="after")
    def _pinned(self) -> "DatasetsCorpus":
        if self.train:
            _check_pin(self.tokenizer, self.tokenizer_revision)
        return self

    @property
    def tokenized(self) -> tuple[object, ...]:
        """The tokenizer is a public one."""
        return self.source, self.tokenizer, self.tokenizer_revision, self.vocabulary

    def write(self, context: Context[Any]) -> Mapping[str, Any]:
        """Save the tokenizer, and write all splits; an interrupted train split goes on."""
        tokenizer = self.load_tokenizer()
        folder = context.out / "tokenizer"
        tokenizer.save_pretrained(folder)
        dtype, counts = splits.dtype(self.vocabulary), dict[str, int]()
        encode = partial(_encode, folder / "tokenizer.json", dtype)
        for name, wanted in self.sizes.items():
            context.progress.say(f"{name}: {wanted:,} tokens")
            if name == "train":
                of_train = partial(encode, end=[tokenizer.eos_token_id])
                counts[name] = _write_train(context, self.train_from, of_train, wanted)
            else:
                # Little, and without special tokens (section 2).
                source: DatasetSource = getattr(self, f"{name}_from")
                texts = source.texts(source.open())
                documents = chain.from_iterable(encode(texts))
                counts[name] = splits.write(context.out, name, documents, wanted, whole=False)
        return {"tokens": counts, splits.DTYPE: dtype.name, "digest": splits.digest(context.out)}

    def load_tokenizer(self) -> "PreTrainedTokenizerBase":
        """The tokenizer; `Problem` when it cannot be had or does not fit."""
        name = self.tokenizer
        if self.tokenizer_revision is None and not name.startswith(LOCAL):
            raise Problem(f"tokenizer {name!r} has no commit in the lock; run ptq-dynamics lock")
        try:
            tokenizer = _loaded(name, self.tokenizer_revision)
        # Besides its own errors, whatever files that are no tokenizer raise.
        except Exception as error:
            raise Problem(
                f"tokenizer {name!r} cannot be loaded: {_reason(error)}; fetch it where there is a "
                "network, or change the scale"
            ) from error
        # Not its length: identifiers may have holes.
        needed = max(tokenizer.get_vocab().values()) + 1
        if needed > self.vocabulary:
            raise Problem(
                f"vocabulary is {self.vocabulary}, fewer than the {needed} tokens of {name}"
            )
        if not tokenizer.is_fast or tokenizer.eos_token_id is None:
            raise Problem(f"tokenizer {name!r} has no tokenizer.json, or no end-of-document token")
        # Where it came from would be saved with it.
        for key in ("is_local", "local_files_only"):
            tokenizer.init_kwargs.pop(key, None)
        return tokenizer


def _encode(
    tokenizer: Path, dtype: np.dtype, texts: Iterator[str], end: Sequence[int] = ()
) -> Iterator[list[np.ndarray]]:
    """Tokens of each document, with `end` after them, `dtype` [n], in batches."""
    from tokenizers import Tokenizer

    # Other jobs tokenize little, and fork; here all threads of the job work.
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    os.environ.setdefault("RAYON_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
    encoder = Tokenizer.from_file(str(tokenizer))
    encoder.no_truncation()
    encoder.no_padding()
    while batch := list(islice(texts, BATCH)):
        found = encoder.encode_batch_fast(batch, add_special_tokens=False)
        yield [np.asarray([*each.ids, *end], dtype=dtype) for each in found]


def _write_train(
    context: Context[Any],
    source: DatasetSource,
    encode: Callable[[Iterator[str]], Iterator[list[np.ndarray]]],
    wanted: int,
) -> int:
    """Write the first `wanted` tokens of a data set; returns how many there were.

    Every few seconds a note in `scratch` says where the data set and the file are; an interrupted
    job goes on from there, to the same bytes.
    """
    file, note = context.out / splits.file_name("train"), context.scratch / "train.json"
    documents, done, size = source.open(), 0, 0
    if note.exists():
        done, size, state = json.loads(note.read_text(encoding="utf-8"))
        documents.load_state_dict(state)
    noted, begun, before = 0.0, time.monotonic(), done
    with file.open("ab") as out:
        out.truncate(size)
        for batch in encode(source.texts(documents)):
            part = np.concatenate(batch)[: wanted - done]
            out.write(part.tobytes())
            done += len(part)
            if done == wanted:
                break
            if time.monotonic() - noted > NOTE_EVERY:
                noted = time.monotonic()
                out.flush()
                os.fsync(out.fileno())
                write_atomically(note, json.dumps([done, out.tell(), documents.state_dict()]))
            rate = (done - before) / (time.monotonic() - begun)
            context.progress.maybe(
                f"train: {done:,} of {wanted:,} tokens, {rate:,.0f} tokens/s, "
                f"about {(wanted - done) / max(rate, 1):,.0f} s to go"
            )
    splits.require("train", done, wanted)
    return done


def _loaded(name: str, revision: str | None) -> "PreTrainedTokenizerBase":
    from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

    try:
        found: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            name, revision=revision, trust_remote_code=False
        )
    except ValueError as error:
        # One that names code of its own is whole in tokenizer.json all the same.
        try:
            return PreTrainedTokenizerFast.from_pretrained(name, revision=revision or "main")
        except Exception:
            raise error from None
    return found


def _reason(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0] or type(error).__name__
