"""What a build downloads, before it is begun: checkpoints and text, with their sizes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ptq_dynamics.config import Config, DatasetsCorpus
from ptq_dynamics.engine.specification import Job
from ptq_dynamics.graph.models import BYTES
from ptq_dynamics.graph.site import Site
from ptq_dynamics.hub.lock import Wanted
from ptq_dynamics.train.fetch import FetchSettings

# Bytes of a token of text.
TEXT = 4.4


@dataclass(frozen=True)
class Outlook:
    """`revisions` to download, in bytes where the lock has them, and else, for the `unlocked` of
    them, as estimated from the parameters; `tokens` of public text to read, about `text_bytes`, of
    which data sets are streamed, and `tokenizers`, with which; `environments` of tools."""

    revisions: int
    locked_bytes: int
    unlocked: int
    estimated_bytes: int
    tokens: int
    text_bytes: int
    tokenizers: int
    environments: int

    @property
    def bytes(self) -> int:
        """All bytes that there is a number of."""
        return self.locked_bytes + self.estimated_bytes + self.text_bytes


def look_ahead(site: Site, jobs: Iterable[Job]) -> Outlook:
    """What some jobs download."""
    revisions = locked = unlocked = estimated = environments = 0
    texts = list[DatasetsCorpus]()
    for job in jobs:
        if isinstance(settings := job.settings, FetchSettings):
            public = site.config.runs.public[job.name.split()[0]]
            for revision in settings.revisions:
                revisions += 1
                locked += sum(file.size for file in revision.files)
                if revision.commit is None:
                    unlocked += 1
                    estimated += (settings.parameters or 0) * BYTES[public.dtype]
                if settings.code is not None:
                    locked += sum(file.size for file in settings.code.files or ())
        if isinstance(settings, DatasetsCorpus):
            texts.append(settings)
        environments += job.stage == "quantize.environment"
    tokens = sum(each.train + each.validation + each.calibration + each.probe for each in texts)
    return Outlook(
        revisions,
        locked,
        unlocked,
        estimated,
        tokens,
        round(TEXT * tokens),
        len({(each.tokenizer, each.tokenizer_revision) for each in texts}),
        environments,
    )


def to_lock(config: Config) -> Iterator[Wanted]:
    """What a scale with the hub takes from it: checkpoints, their code where it is trusted, and
    tokenizers, as of the last revisions."""
    last = dict[str, tuple[int, str]]()
    for public in config.runs.public.values():
        for name, released in public.revisions.items():
            yield Wanted(public.repository, name)
            place = (released.step or 0, name)
            last[public.repository] = max(last.get(public.repository, place), place)
        if public.code is not None:
            yield Wanted(public.repository, public.code.commit, "code")
    for corpus in config.scale.corpora.values():
        if isinstance(corpus, DatasetsCorpus) and corpus.tokenizer in last:
            yield Wanted(corpus.tokenizer, last[corpus.tokenizer][1], "tokenizer")
