"""Held-out text in the tokens of a checkpoint's tokenizer."""

from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator
from itertools import chain, takewhile
from operator import not_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from ptq_dynamics.base import needs
from ptq_dynamics.base.fields import Count, Strict
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.corpus import splits
from ptq_dynamics.corpus.sources import Corpus, WholeCorpus
from ptq_dynamics.corpus.sources.datasets import (
    Chat,
    DatasetsCorpus,
    DatasetSource,
    Message,
    load_tokenizer,
)
from ptq_dynamics.corpus.sources.embedded import EmbeddedCorpus
from ptq_dynamics.engine.context import Context
from ptq_dynamics.engine.manifest import Facts
from ptq_dynamics.hub.files import is_of_tokenizer
from ptq_dynamics.hub.folders import LocalFile

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class Texts(Strict):
    """Paragraphs of text `files`, or documents of a data set: of tables among `files`, or else of
    the hub."""

    folder: str = ""
    files: tuple[LocalFile, ...] = ()
    dataset: DatasetSource | None = None

    def documents(self, chat: Chat) -> Iterator[str]:
        """Yield the documents, chats included; raise `Problem` for text that is not UTF-8."""
        if self.dataset is not None and not self.files:
            yield from self.dataset.texts(self.dataset.open(), chat)
        for name in (part.name for part in self.files if part.size):
            path = Path(self.folder, name)
            text = "" if path.suffix.lower() == ".parquet" else read_text(path)
            if self.dataset is None:
                yield from (f"{part.strip()}\n" for part in text.split("\n\n") if part.strip())
            else:
                table = self.dataset.model_copy(update={"data_files": name})
                yield from table.texts(table.open(), chat)


def joined(chat: list[Message]) -> str:
    """Return what the messages of a chat say, without the template of a tokenizer."""
    return "\n".join(message["content"] for message in chat)


def read_text(path: Path) -> str:
    """Return the text of a file without its byte-order mark; raise `Problem` if it is not UTF-8."""
    data = path.read_bytes()
    try:
        text, wrong = data.decode("utf-8"), len(data)
    except UnicodeDecodeError as error:
        text, wrong = "", error.start
    # Text in UTF-16 without a byte-order mark may be valid UTF-8, but with zeros.
    wrong = min(wrong, len(data) if (zero := data.find(b"\0")) < 0 else zero)
    if wrong < len(data):
        is_wide = data.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) or not data[wrong]
        why = "is UTF-16 or no text" if is_wide else "is not UTF-8"
        raise Problem(f"{path.resolve()} {why} (byte {wrong:,}); save it as UTF-8, or move it away")
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


class OwnCorpus(WholeCorpus):
    """Held-out splits of some text; train is empty, and probe where no curvature is measured. With
    `bos`, each block begins with the tokens that the tokenizer puts before a text."""

    source: Literal["own"]
    train: Literal[0] = 0
    probe: Annotated[int, Field(ge=0)]
    vocabulary: Count
    text: EmbeddedCorpus | DatasetsCorpus | Texts
    bos: Annotated[bool, Field(exclude_if=not_)] = False

    @property
    def tokenized(self) -> tuple[object, ...]:
        """The vocabulary, since the tokenizer is that of a checkpoint."""
        return self.source, self.vocabulary

    @classmethod
    def after(cls, main: Corpus, vocabulary: int, bos: bool) -> "OwnCorpus":
        """Return a corpus with the text of another corpus."""
        assert isinstance(main, OwnCorpus | EmbeddedCorpus | DatasetsCorpus)
        return cls(
            source="own",
            vocabulary=vocabulary,
            text=main.text if isinstance(main, OwnCorpus) else main,
            validation=main.validation,
            calibration=main.calibration,
            probe=main.probe,
            bos=bos,
        )

    def write(self, context: Context[object]) -> Facts:
        """Save the tokenizer, and write all splits."""
        checkpoint = context.input(needs.CHECKPOINT)
        names = [name for name in checkpoint.files if is_of_tokenizer(Path(name).name)]
        place = str(next(map(checkpoint.file, names)).parent)
        tokenizer = load_tokenizer(place, "main", self.vocabulary)
        tokenizer.save_pretrained(context.out / "tokenizer")
        encoder, dtype = tokenizer.backend_tokenizer, splits.dtype(self.vocabulary)
        begin = {splits.BEGIN: _before(encoder)} if self.bos else {}
        if not isinstance(self.text, Texts):
            texts = {**self.text.split_texts(), "train": ()}
            return {**self.write_splits(context.out, encoder, texts), **begin}

        def chat(messages: list[Message]) -> str:
            return str(tokenizer.apply_chat_template([*map(dict, messages)], tokenize=False))

        encoded = splits.encode(encoder, self.text.documents(chat), dtype)
        sizes = self.sizes
        parts = splits.cut(chain.from_iterable(encoded), sizes)
        count, needed = sum(map(len, chain(*parts.values()))), sum(sizes.values())
        if count < needed:
            lacking = f"has {count:,} tokens, but {needed:,} are required"
            raise Problem(f"the text of --text {lacking}; add text, or lower --tokens")
        counts = dict[str, int]()
        for name, part in parts.items():
            counts[name] = splits.save_split(context.out, name, [part], sizes[name])
        return {**splits.split_facts(context.out, dtype, counts), **begin}


def _before(tokenizer: "Tokenizer") -> list[int]:
    """Return the tokens that a tokenizer puts before a text, as BOS."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    encoded = tokenizer.encode("a")
    marked = zip(encoded.ids, encoded.special_tokens_mask, strict=True)
    return [token for token, _ in takewhile(lambda pair: pair[1], marked)]
