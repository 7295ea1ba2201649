"""Held-out text in the tokens of a checkpoint's tokenizer."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from ptq_dynamics.base.fields import Count, Strict
from ptq_dynamics.corpus import splits
from ptq_dynamics.corpus.sources import SplitTexts, WholeCorpus
from ptq_dynamics.corpus.sources.datasets import DatasetsCorpus, DatasetSource, load_tokenizer
from ptq_dynamics.corpus.sources.embedded import EmbeddedCorpus
from ptq_dynamics.engine.context import Context
from ptq_dynamics.hub.files import is_of_tokenizer
from ptq_dynamics.hub.folders import LocalFile


class Texts(Strict):
    """Paragraphs of text `files`, or documents of a data set, dealt by `characters` of splits."""

    folder: str = ""
    files: tuple[LocalFile, ...] = ()
    dataset: DatasetSource | None = None
    characters: dict[splits.Split, Count]

    def documents(self) -> Iterator[str]:
        """Yield the documents."""
        if self.dataset is not None:
            yield from self.dataset.texts(self.dataset.open())
        for path in (Path(self.folder, each.name) for each in self.files if not self.dataset):
            text = path.read_text(encoding="utf-8", errors="replace")
            yield from (f"{each.strip()}\n" for each in text.split("\n\n") if each.strip())

    def split_texts(self) -> SplitTexts:
        """Return the documents of each held-out split."""
        return splits.deal(self.documents(), self.characters, rest=False)


class OwnCorpus(WholeCorpus):
    """Held-out splits of some text; train is empty."""

    source: Literal["own"]
    train: Literal[0] = 0
    vocabulary: Count
    text: EmbeddedCorpus | DatasetsCorpus | Texts

    @property
    def tokenized(self) -> tuple[object, ...]:
        """The vocabulary, since the tokenizer is that of a checkpoint."""
        return self.source, self.vocabulary

    @classmethod
    def after(cls, main: Any, vocabulary: int) -> "OwnCorpus":
        """Return a corpus with the text of another corpus."""
        sizes: dict[str, Any] = {name: getattr(main, name) for name in splits.HELD_OUT}
        text = main.text if isinstance(main, OwnCorpus) else main
        return cls(source="own", vocabulary=vocabulary, text=text, **sizes)

    def write(self, context: Context[Any]) -> Mapping[str, Any]:
        """Save the tokenizer, and write all splits."""
        checkpoint = context.input("checkpoint")
        names = [name for name in checkpoint.files if is_of_tokenizer(Path(name).name)]
        place = str(next(map(checkpoint.file, names)).parent)
        tokenizer = load_tokenizer(place, "main", self.vocabulary)
        tokenizer.save_pretrained(context.out / "tokenizer")
        texts = {**self.text.split_texts(), "train": ()}
        return self.write_splits(context.out, tokenizer.backend_tokenizer, texts)
