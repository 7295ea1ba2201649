"""The types of the files under config/, and their validation before any job starts."""

# ruff: noqa: F401 (other rooms import these names from this package)
from ptq_dynamics.config.errors import require
from ptq_dynamics.config.loading import TYPES, Config, load, read, read_yaml, scales, schema
from ptq_dynamics.config.runs import Branch, Run, Whole
from ptq_dynamics.corpus.sources.datasets import DatasetsCorpus
from ptq_dynamics.corpus.sources.embedded import EmbeddedCorpus
from ptq_dynamics.figures.figure import Figure
