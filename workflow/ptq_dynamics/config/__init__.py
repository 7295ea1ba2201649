"""The types of the files under config/, and how they are read.

Configuration holds what is built. Everything here is checked before any job starts; an error names
the file, the key, the value and what is allowed.
"""

from ptq_dynamics.config.loading import Config, load, load_sweep, read_yaml, scales
from ptq_dynamics.config.names import require
from ptq_dynamics.config.public import Public, PublicRun
from ptq_dynamics.config.quantizers import Calibrated
from ptq_dynamics.config.queries import Sweep
from ptq_dynamics.config.runs import Branch, Run, Whole
from ptq_dynamics.config.stages import Stage
from ptq_dynamics.config.trajectories import Runs
from ptq_dynamics.corpus.sources import Corpus, Derived
from ptq_dynamics.corpus.sources.datasets import DatasetsCorpus
from ptq_dynamics.corpus.sources.dialogues import DialoguesCorpus
from ptq_dynamics.corpus.sources.embedded import EmbeddedCorpus
from ptq_dynamics.corpus.sources.mix import MixCorpus
from ptq_dynamics.figures.figure import Figure

__all__ = [
    "Branch",
    "Calibrated",
    "Config",
    "Corpus",
    "DatasetsCorpus",
    "Derived",
    "DialoguesCorpus",
    "EmbeddedCorpus",
    "Figure",
    "MixCorpus",
    "Public",
    "PublicRun",
    "Run",
    "Runs",
    "Stage",
    "Sweep",
    "Whole",
    "load",
    "load_sweep",
    "read_yaml",
    "require",
    "scales",
]
