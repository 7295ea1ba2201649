"""The jobs that make token files and tokenizers."""

from functools import cache

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
        return Job(
            f"corpus.{corpus.source}",
            name,
            f"{self._site.results}/corpus/{name}",
            {},
            corpus.model_dump(mode="json", exclude={"source"}),
        )

    def of(self, trajectory: str) -> Job:
        """The corpus whose tokenizer a trajectory has."""
        timeline = self._site.timeline
        return self.corpus(timeline.trajectory(trajectory).model_shape(timeline).corpus)
