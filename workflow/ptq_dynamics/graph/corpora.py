"""The jobs that make token files and tokenizers."""

from functools import cache

from ptq_dynamics.config import (
    Corpus,
    Derived,
    DialoguesCorpus,
    EmbeddedCorpus,
    MixCorpus,
)
from ptq_dynamics.corpus.settings import (
    HELD_OUT,
    SPLITS,
    DatasetsSettings,
    DialoguesSettings,
    EmbeddedSettings,
    FunctionsSettings,
    MixSettings,
    Source,
)
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.graph.site import Site


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
        packages = corpus.packages if isinstance(corpus, EmbeddedCorpus | MixCorpus) else ()
        inputs = {}
        if isinstance(corpus, Derived):
            inputs["corpus"] = [self.corpus(corpus.of).manifest]
        if isinstance(corpus, DialoguesCorpus):
            inputs["functions"] = [self.functions(corpus.of).manifest]
        stage = f"corpus.{corpus.source}"
        return self._site.add(
            Job(stage, name, folder, inputs, settings(corpus), distributions=tuple(packages))
        )

    @cache
    def functions(self, corpus: str) -> Job:
        """Functions and held-out documents of an embedded corpus."""
        scale = self._site.config.scale
        others = scale.tasks.others if scale.tasks else ()
        whole = scale.corpora[corpus]
        assert isinstance(whole, EmbeddedCorpus)
        return self._site.add(
            Job(
                "corpus.functions",
                corpus,
                self._site.place("functions", corpus=corpus),
                {},
                FunctionsSettings(
                    tuple(whole.packages),
                    whole.source_code,
                    whole.shortest_document,
                    {
                        split: getattr(whole, split) * whole.characters_per_token
                        for split in HELD_OUT
                    },
                    others,
                ),
                distributions=(*whole.packages, *others),
            )
        )

    def of(self, trajectory: str) -> Job:
        """The corpus whose tokenizer a trajectory has."""
        timeline = self._site.timeline
        return self.corpus(timeline.trajectory(trajectory).model_shape(timeline).corpus)


def settings(
    corpus: Corpus,
) -> EmbeddedSettings | DatasetsSettings | MixSettings | DialoguesSettings:
    """What the stage of a corpus needs to know."""
    if isinstance(corpus, DialoguesCorpus):
        return DialoguesSettings(corpus.template, corpus.question, corpus.train)
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
