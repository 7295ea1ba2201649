"""What a build takes, before it is begun: jobs by kind, downloads and text, with their sizes."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from ptq_dynamics.config import Config, DatasetsCorpus
from ptq_dynamics.hub.lock import Wanted
from ptq_dynamics.jobs.specification import Job
from ptq_dynamics.plan.resources import ON_DEVICE
from ptq_dynamics.plan.site import Site
from ptq_dynamics.trajectories.fetch_settings import FetchSettings

# Bytes of a token of text.
TEXT = 4.4
# Bytes of a parameter, where the lock does not say how large a download is.
BYTES = {"bfloat16": 2, "float32": 4}


@dataclass(frozen=True)
class Outlook:
    """`jobs` by kind, and how many of them compute on a GPU where there is one; `revisions` to
    download, in bytes where the lock has them, and else, for the `unlocked` of them, as estimated
    from the parameters; `tokens` of public text to read, about `text_bytes`, of which data sets
    are streamed, and `tokenizers`, with which."""

    jobs: dict[str, int]
    on_device: int
    revisions: int
    locked_bytes: int
    unlocked: int
    estimated_bytes: int
    tokens: int
    text_bytes: int
    tokenizers: int


def look_ahead(site: Site, targets: list[Job]) -> Outlook:
    """What it takes to make some targets and all that they need, from nothing."""
    jobs = list(site.needed(targets))
    kinds = Counter(kind(site, job) for job in jobs)
    revisions = locked = unlocked = estimated = 0
    for job in jobs:
        if isinstance(job.settings, FetchSettings):
            public = site.config.runs.public[job.name.split()[0]]
            for revision in job.settings.revisions:
                revisions += 1
                locked += sum(file.size for file in revision.files)
                if revision.commit is None:
                    unlocked += 1
                    estimated += (job.settings.parameters or 0) * BYTES[public.dtype]
                if job.settings.code is not None:
                    locked += sum(file.size for file in job.settings.code.files or ())
    corpora = (site.config.scale.corpora[job.name] for job in jobs if kind(site, job) == "corpus")
    texts = [corpus for corpus in corpora if isinstance(corpus, DatasetsCorpus)]
    tokens = sum(each.train + each.validation + each.calibration + each.probe for each in texts)
    return Outlook(
        dict(sorted(kinds.items())),
        sum(count for name, count in kinds.items() if name in ON_DEVICE),
        revisions,
        locked,
        unlocked,
        estimated,
        tokens,
        round(TEXT * tokens),
        len({(each.tokenizer, each.tokenizer_revision) for each in texts}),
    )


def kind(site: Site, job: Job) -> str:
    """What a job makes: the first folder of its result below those of the scale."""
    if job.folder in (site.pictures, site.results):
        return "figure" if job.folder == site.pictures else "table"
    below = job.folder.removeprefix(f"{site.results}/").split("/")[0]
    return "environment" if below == "envs" else below


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
