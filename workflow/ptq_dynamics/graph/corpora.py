"""The jobs that make token files and tokenizers."""

from functools import cache

from ptq_dynamics.corpus.functions import FunctionsSettings
from ptq_dynamics.corpus.sources import Derived
from ptq_dynamics.corpus.sources.embedded import EmbeddedCorpus
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
        inputs = {}
        if isinstance(corpus, Derived):
            inputs["corpus"] = [self.corpus(corpus.of).manifest]
            if corpus.from_functions:
                inputs["functions"] = [self.functions(corpus.of).manifest]
        # Their text is what the corpus is made of.
        packages = getattr(corpus, "packages", ())
        folder = self._site.place("corpus", corpus=name)
        return self._site.add(
            Job("corpus.corpus", name, folder, inputs, corpus, distributions=packages)
        )

    @cache
    def functions(self, corpus: str) -> Job:
        """Functions and held-out documents of an embedded corpus."""
        scale = self._site.config.scale
        others = tuple(scale.tasks.others) if scale.tasks else ()
        whole = scale.corpora[corpus]
        assert isinstance(whole, EmbeddedCorpus)
        folder = self._site.place("functions", corpus=corpus)
        settings = FunctionsSettings(corpus=whole, others=others)
        return self._site.add(
            Job(
                "corpus.functions",
                corpus,
                folder,
                {},
                settings,
                distributions=(*whole.packages, *others),
            )
        )

    def of(self, trajectory: str) -> Job:
        """The corpus whose tokenizer a trajectory has."""
        timeline = self._site.timeline
        return self.corpus(timeline.trajectory(trajectory).model_shape(timeline).corpus)
