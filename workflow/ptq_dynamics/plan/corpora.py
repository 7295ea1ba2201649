"""The jobs that make corpora."""

from ptq_dynamics.config import DatasetsCorpus, EmbeddedCorpus
from ptq_dynamics.corpus.settings import DatasetsSettings, EmbeddedSettings, Source
from ptq_dynamics.corpus.splits import SPLITS
from ptq_dynamics.jobs.specification import Job


def job(name: str, corpus: EmbeddedCorpus | DatasetsCorpus, results: str) -> Job:
    """Token files and tokenizer of one corpus."""
    stage, folder = f"corpus.{corpus.source}", f"{results}/corpus/{name}"
    return Job(stage, name, folder, {}, settings(corpus))


def settings(corpus: EmbeddedCorpus | DatasetsCorpus) -> EmbeddedSettings | DatasetsSettings:
    """What the stage of a corpus needs to know."""
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
