"""The stage that writes the token files and the tokenizer of a corpus."""

from typing import Annotated

from ptq_dynamics.base.components import OneOf
from ptq_dynamics.corpus.sources import Corpus
from ptq_dynamics.engine.context import Context
from ptq_dynamics.engine.manifest import Facts

AnyCorpus = Annotated[Corpus, OneOf("ptq_dynamics.corpus.sources", by="source")]

RESUMABLE = True


def run(context: Context[AnyCorpus]) -> Facts:
    """Write the corpus."""
    return context.settings.write(context)
