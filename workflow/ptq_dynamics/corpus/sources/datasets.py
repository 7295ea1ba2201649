"""A corpus from public data sets with a public tokenizer (section 4), as at scale paper."""

import glob
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from ptq_dynamics.base.content import write_atomically
from ptq_dynamics.base.fields import Strict
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.corpus import splits
from ptq_dynamics.corpus.sources import SplitTexts, WholeCorpus
from ptq_dynamics.engine.context import Context
from ptq_dynamics.engine.manifest import Facts
from ptq_dynamics.hub.files import COMMIT

if TYPE_CHECKING:
    from datasets import IterableDataset
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

Message = Mapping[str, str]  # of a chat, with a role and its content
Chat = Callable[[list[Message]], str]  # the text of a chat
Encode = Callable[[Iterable[str]], Iterator[list[np.ndarray]]]
NOTE_EVERY = 10.0  # seconds
LOCAL = ("/", "./", "../")


class DatasetSource(Strict):
    """A data set for `datasets.load_dataset`, on the hub at the commit `revision` or in a local
    folder; documents are in `field`, and the first `skip` are left out."""

    path: str
    name: str | None = None
    data_files: str | None = None
    revision: str | None = None
    field: str = "text"
    skip: Annotated[int, Field(ge=0)] = 0

    @property
    def place(self) -> str:
        """The name of the data set, or the path of its file or folder."""
        local = os.path.abspath(Path(self.path, self.data_files or ""))
        return local if self.path.startswith(LOCAL) else self.path

    def open(self) -> "IterableDataset":
        """Return the rows."""
        from datasets import load_dataset, logging

        # It logs what it raises as well.
        logging.set_verbosity(logging.CRITICAL)
        about = self.model_dump(exclude={"field", "skip"})
        if Path(self.place).is_file():
            about["data_files"] = glob.escape(self.place)  # else a pattern
        with self._readable():
            return load_dataset(**about, split="train", streaming=True).skip(self.skip)

    def texts(self, documents: "IterableDataset", chat: Chat | None = None) -> Iterator[str]:
        """Yield the text of each row; `chat` turns lists of messages into text."""
        with self._readable():
            for number, row in enumerate(documents, start=self.skip + 1):
                value, place = row.get(self.field), f"row {number:,} of data set {self.place}"
                if chat is not None and (messages := _messages(value)):
                    try:
                        value = chat(messages)
                    # Templates raise many types of errors.
                    except Exception as error:
                        why = " ".join(str(error).split())
                        raise Problem(
                            f"{place} fits no chat template ({why}); correct it"
                        ) from error
                if not isinstance(value, str):
                    raise Problem(
                        f"{place} has no text in {self.field!r}; correct it, or set --field or "
                        f"field (there are: {', '.join(row)})"
                    )
                yield value

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, RuntimeError) as error:
            is_local = self.path.startswith(LOCAL)
            mend = "correct it" if is_local else "run the same command again to resume"
            why = " ".join(str(error).split())
            raise Problem(f"data set {self.place} cannot be read: {why}; {mend}") from error


def _messages(value: object) -> list[Message]:
    """Return the messages of a chat; none if a value is no list of them."""
    rows = value if isinstance(value, list) else []
    keys = ("role", "content")
    are_messages = all(
        isinstance(r, dict) and all(isinstance(r.get(k), str) for k in keys) for r in rows
    )
    # Tables fill entries that a message lacks.
    return [{k: v for k, v in row.items() if v is not None} for row in rows] if are_messages else []


class DatasetsCorpus(WholeCorpus):
    """Splits from public data sets, with sizes in tokens; train is empty for a public family."""

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
        sources: list[DatasetSource] = [getattr(self, f"{split}_from") for split in splits.SPLITS]
        pins = [(source.path, source.revision) for source in sources]
        pins += [(self.tokenizer, self.tokenizer_revision)] if self.train else []
        for name, revision in pins:
            if not name.startswith(LOCAL) and not COMMIT.fullmatch(revision or ""):
                raise ValueError(
                    f"pins {name} to {revision or 'nothing'}, and must be a full commit id, 40 "
                    f"hexadecimal digits: see https://huggingface.co/{name}/commits/main, datasets/"
                    " before the name of a data set; a local folder begins with / or ./"
                )
        return self

    @property
    def tokenized(self) -> tuple[object, ...]:
        """The tokenizer and its revision."""
        return self.source, self.tokenizer, self.tokenizer_revision, self.vocabulary

    def write(self, context: Context[object]) -> Facts:
        """Save the tokenizer, and write all splits; an interrupted train split continues."""
        place, revision = self.tokenizer, self.tokenizer_revision
        if revision is None and not place.startswith(LOCAL):
            raise Problem(f"tokenizer {place!r} has no commit in the lock; run ptq-dynamics lock")
        tokenizer = load_tokenizer(place, revision or "main", self.vocabulary)
        if tokenizer.eos_token_id is None:
            raise Problem(f"tokenizer {place!r} has no end-of-document token; change the scale")
        tokenizer.save_pretrained(context.out / "tokenizer")
        # Jobs that fork switch this off.
        os.environ["TOKENIZERS_PARALLELISM"] = "true"
        os.environ.setdefault("RAYON_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
        encoder, dtype = tokenizer.backend_tokenizer, splits.dtype(self.vocabulary)
        encode = partial(splits.encode, encoder, dtype=dtype, end=tokenizer.eos_token_id)
        train = _write_train(context, self.train_from, encode, self.train)
        context.progress.say(f"{train:,} train tokens; held-out splits follow")
        return self.write_splits(context.out, encoder, self.split_texts(), train=train)

    def split_texts(self) -> SplitTexts:
        """Return the documents of each held-out split."""
        sources = {name: getattr(self, f"{name}_from") for name in splits.HELD_OUT}
        return {name: source.texts(source.open()) for name, source in sources.items()}


def load_tokenizer(
    name: str, revision: str, vocabulary: int | None = None
) -> "PreTrainedTokenizerFast":
    """Load a fast tokenizer. Raise `Problem` if it has only special tokens, or more tokens than
    `vocabulary`."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    fast: PreTrainedTokenizerBase
    try:
        try:
            fast = AutoTokenizer.from_pretrained(name, revision=revision, trust_remote_code=False)
            fast = _as_saved(fast, name, revision)
        except ValueError:
            # A tokenizer with code of its own has a tokenizer.json as well.
            fast = PreTrainedTokenizerFast.from_pretrained(name, revision=revision)
    except Exception as error:
        raise Problem(
            f"tokenizer {name!r} cannot be loaded ({' '.join(str(error).split())}); fetch it "
            "where there is a network, save its tokenizer.json, or change the scale"
        ) from error
    if not isinstance(fast, PreTrainedTokenizerFast):
        raise Problem(f"tokenizer {name!r} has no tokenizer.json; save it as a fast one")
    if not {*fast.get_vocab()} - {*fast.all_special_tokens}:
        raise Problem(f"tokenizer {name!r} has no vocabulary; save its tokenizer.json")
    # Ids may have gaps.
    needed = max(fast.get_vocab().values()) + 1
    if vocabulary is not None and needed > vocabulary:
        raise Problem(f"vocabulary is {vocabulary}, fewer than the {needed} tokens of {name}")
    # save_pretrained would save these.
    for key in ("is_local", "local_files_only"):
        fast.init_kwargs.pop(key, None)
    return fast


def _as_saved(
    tokenizer: "PreTrainedTokenizerBase", name: str, revision: str
) -> "PreTrainedTokenizerBase":
    """Return a tokenizer that splits text as its tokenizer.json says. For some classes, such as
    Llama's, transformers 5 reads no more than the vocabulary from this file."""
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast
    from transformers.utils import cached_file

    options = {"revision": revision, "_raise_exceptions_for_missing_entries": False}
    file = cached_file(name, "tokenizer.json", **options)
    if file is None or not isinstance(tokenizer, PreTrainedTokenizerFast):
        return tokenizer
    if _splitting(Tokenizer.from_file(file)) == _splitting(tokenizer.backend_tokenizer):
        return tokenizer
    saved = PreTrainedTokenizerFast.from_pretrained(name, revision=revision)
    # Special tokens, and whether a text starts with BOS, may come from the class, not the file.
    for kind in ("bos_token", "eos_token", "unk_token", "pad_token"):
        token = getattr(tokenizer, kind)
        if getattr(saved, kind) is None and token in saved.get_vocab():
            setattr(saved, kind, token)
    if not tokenizer.encode(""):
        saved.backend_tokenizer.post_processor = tokenizer.backend_tokenizer.post_processor
    elif tokenizer.add_bos_token and saved.bos_token and not saved.encode(""):
        saved.add_bos_token = True
    return saved


def _splitting(tokenizer: "Tokenizer") -> list[object]:
    """Return the parts of a tokenizer that decide how it splits text, without `add_prefix_space`,
    which is in tokenizer_config.json."""
    content = json.loads(
        tokenizer.to_str(),
        object_hook=lambda part: {k: v for k, v in part.items() if k != "add_prefix_space"},
    )
    return [content[key] for key in ("normalizer", "pre_tokenizer", "model")]


def _write_train(
    context: Context[object], source: DatasetSource, encode: "Encode", wanted: int
) -> int:
    # A note in `scratch` has the positions in data set and file, from where a job continues.
    file, note = context.out / "train.bin", context.scratch / "train.json"
    documents, done, size, noted = source.open(), 0, 0, 0.0
    if note.exists():
        done, size, state = json.loads(note.read_text(encoding="utf-8"))
        documents.load_state_dict(state)
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
            context.progress.maybe(f"train: {done:,} of {wanted:,} tokens")
    splits.require_tokens("train", done, wanted)
    return done
