"""The stage that writes the token files and the tokenizer of a corpus."""

from collections.abc import Mapping
from typing import Annotated, Any

from ptq_dynamics.base.components import OneOf
from ptq_dynamics.corpus.sources import Corpus
from ptq_dynamics.engine.context import Context

AnyCorpus = Annotated[Corpus, OneOf("ptq_dynamics.corpus.sources", by="source")]

RESUMABLE = True


def run(context: Context[AnyCorpus]) -> Mapping[str, Any]:
    """Write the corpus."""
    return context.settings.write(context)
