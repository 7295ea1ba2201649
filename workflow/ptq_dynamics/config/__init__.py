"""The types of the files under config/, and how they are read: before any job starts, with errors
that name the file, the key, the value and what is allowed."""

# ruff: noqa: F401 (other rooms have these from here)
from ptq_dynamics.config.errors import require
from ptq_dynamics.config.loading import TYPES, Config, Sweep, load, read, read_yaml, scales, schema
from ptq_dynamics.config.miniatures import Stage
from ptq_dynamics.config.releases import Public, PublicRun
from ptq_dynamics.config.runs import Branch, Run, Whole
from ptq_dynamics.corpus.sources.datasets import DatasetsCorpus
from ptq_dynamics.corpus.sources.embedded import EmbeddedCorpus
from ptq_dynamics.figures.figure import Figure
