"""Held-out text for models that were trained elsewhere, in the tokens of their tokenizers."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from ptq_dynamics.base.fields import Count, Strict
from ptq_dynamics.corpus import splits
from ptq_dynamics.corpus.sources import WholeCorpus
from ptq_dynamics.corpus.sources.datasets import DatasetsCorpus, DatasetSource, load_tokenizer
from ptq_dynamics.corpus.sources.embedded import EmbeddedCorpus
from ptq_dynamics.engine.context import Context
from ptq_dynamics.hub.files import is_of_tokenizer
from ptq_dynamics.hub.folders import LocalFile


class Texts(Strict):
    """Paragraphs of text `files` in a `folder`, or the documents of a data set, which may consist
    of them. They go to each held-out split in turn until it has so many `characters`."""

    folder: str = ""
    files: tuple[LocalFile, ...] = ()
    dataset: DatasetSource | None = None
    characters: dict[splits.Split, Count]

    def documents(self) -> Iterator[str]:
        """The documents."""
        if self.dataset is not None:
            yield from self.dataset.texts(self.dataset.open())
        for path in (Path(self.folder, each.name) for each in self.files if not self.dataset):
            text = path.read_text(encoding="utf-8", errors="replace")
            yield from (f"{each.strip()}\n" for each in text.split("\n\n") if each.strip())

    def split_texts(self) -> Mapping[splits.Split, Iterable[str]]:
        """Documents of each held-out split."""
        found, rest = {name: list[str]() for name in splits.HELD_OUT}, self.documents()
        for name in splits.HELD_OUT:
            wanted = self.characters[name]
            while wanted > 0 and (document := next(rest, None)) is not None:
                found[name].append(document)
                wanted -= len(document)
        return found


class OwnCorpus(WholeCorpus):
    """The held-out splits of some text in the tokens of a checkpoint's tokenizer; nothing is
    trained on it."""

    source: Literal["own"]
    train: Literal[0] = 0
    vocabulary: Count
    text: EmbeddedCorpus | DatasetsCorpus | Texts

    @property
    def tokenized(self) -> tuple[object, ...]:
        """The tokenizer is that of a checkpoint."""
        return self.source, self.vocabulary

    @classmethod
    def after(cls, main: Any, vocabulary: int) -> "OwnCorpus":
        """The same text as another corpus has, in other tokens."""
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
        dtype = splits.dtype(self.vocabulary)
        texts, counts = self.text.split_texts(), dict[splits.Split, int]()
        for name, size in self.sizes.items():
            documents = texts.get(name, ()) if size else ()
            encoded = splits.encode(tokenizer.backend_tokenizer, documents, dtype)
            counts[name] = splits.write(context.out, name, encoded, size)
        context.progress.say(", ".join(f"{counts[name]:,} {name} tokens" for name in counts))
        return splits.facts(context.out, dtype, counts)
