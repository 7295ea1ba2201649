"""The jobs that make token files and tokenizers."""

from functools import cache

from ptq_dynamics.config import Corpus, DatasetsCorpus, EmbeddedCorpus, MixCorpus
from ptq_dynamics.corpus.settings import (
    SPLITS,
    DatasetsSettings,
    EmbeddedSettings,
    MixSettings,
    Source,
)
from ptq_dynamics.jobs.specification import Job
from ptq_dynamics.plan.site import Site


class Corpora:
    """The corpora of a scale."""

    def __init__(self, site: Site) -> None:
        self._site = site

    @cache
    def corpus(self, name: str = "main") -> Job:
        """Token files and tokenizer of one corpus."""
        corpus = self._site.config.scale.corpora[name]
        folder = self._site.place("corpus", corpus=name)
        # Their text is what the corpus is made of.
        packages = () if isinstance(corpus, DatasetsCorpus) else tuple(corpus.packages)
        inputs = {}
        if isinstance(corpus, MixCorpus):
            inputs["corpus"] = [self.corpus(corpus.of).manifest]
        stage = f"corpus.{corpus.source}"
        return self._site.add(
            Job(stage, name, folder, inputs, settings(corpus), distributions=packages)
        )

    def of(self, trajectory: str) -> Job:
        """The corpus whose tokenizer a trajectory has."""
        timeline = self._site.timeline
        return self.corpus(timeline.trajectory(trajectory).model_shape(timeline).corpus)


def settings(corpus: Corpus) -> EmbeddedSettings | DatasetsSettings | MixSettings:
    """What the stage of a corpus needs to know."""
    if isinstance(corpus, MixCorpus):
        return MixSettings(
            text=corpus.text,
            packages=tuple(corpus.packages),
            shortest_document=corpus.shortest_document,
            train=corpus.train,
        )
    sizes = {split: getattr(corpus, split) for split in SPLITS}
    if isinstance(corpus, EmbeddedCorpus):
        return EmbeddedSettings(
            packages=tuple(corpus.packages),
            source_code=corpus.source_code,
            shortest_document=corpus.shortest_document,
            characters_per_token=corpus.characters_per_token,
            vocabulary=corpus.vocabulary,
            sizes=sizes,
        )
    sources = {split: getattr(corpus, f"{split}_from") for split in SPLITS}
    return DatasetsSettings(
        tokenizer=corpus.tokenizer,
        tokenizer_revision=corpus.tokenizer_revision,
        vocabulary=corpus.vocabulary,
        sources={split: Source(**source.model_dump()) for split, source in sources.items()},
        sizes=sizes,
    )
