"""The types of the files under config/, and how they are read: before any job starts, with errors
that name the file, the key, the value and what is allowed."""

from ptq_dynamics.config.errors import require as require
from ptq_dynamics.config.loading import TYPES as TYPES
from ptq_dynamics.config.loading import Config as Config
from ptq_dynamics.config.loading import Sweep as Sweep
from ptq_dynamics.config.loading import load as load
from ptq_dynamics.config.loading import read as read
from ptq_dynamics.config.loading import read_yaml as read_yaml
from ptq_dynamics.config.loading import scales as scales
from ptq_dynamics.config.loading import schema as schema
from ptq_dynamics.config.miniatures import Stage as Stage
from ptq_dynamics.config.releases import Public as Public
from ptq_dynamics.config.releases import PublicRun as PublicRun
from ptq_dynamics.config.runs import Branch as Branch
from ptq_dynamics.config.runs import Run as Run
from ptq_dynamics.config.runs import Whole as Whole
from ptq_dynamics.corpus.sources.datasets import DatasetsCorpus as DatasetsCorpus
from ptq_dynamics.corpus.sources.embedded import EmbeddedCorpus as EmbeddedCorpus
from ptq_dynamics.figures.figure import Figure as Figure
