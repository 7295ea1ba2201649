"""The stage that makes a corpus: token files and a tokenizer, from any source."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ptq_dynamics.base.components import union
from ptq_dynamics.corpus.sources import Corpus
from ptq_dynamics.engine.context import Context

if TYPE_CHECKING:
    AnyCorpus = Corpus
else:
    AnyCorpus = union("ptq_dynamics.corpus.sources", Corpus, "source")

RESUMABLE = True


def run(context: Context[AnyCorpus]) -> Mapping[str, Any]:
    """Write the corpus that the settings describe."""
    return context.settings.write(context)
