"""The types of the files under config/, and how they are read.

Configuration holds what is built. Everything here is checked before any job starts; an error names
the file, the key, the value and what is allowed.
"""

from ptq_dynamics.config.corpora import (
    Corpus,
    DatasetsCorpus,
    Derived,
    DialoguesCorpus,
    EmbeddedCorpus,
    MixCorpus,
)
from ptq_dynamics.config.figures import Figure, Landscapes, Losses, Onset, Pca, Windows
from ptq_dynamics.config.loading import Config, load, load_sweep, read_yaml, scales
from ptq_dynamics.config.names import require
from ptq_dynamics.config.public import Public, PublicRun
from ptq_dynamics.config.quantizers import Calibrated
from ptq_dynamics.config.queries import Query, Sweep
from ptq_dynamics.config.runs import Branch, Run, Whole
from ptq_dynamics.config.stages import Stage
from ptq_dynamics.config.tasks import HarnessTask, MadeTask
from ptq_dynamics.config.trajectories import Runs

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
    "HarnessTask",
    "Landscapes",
    "Losses",
    "MadeTask",
    "MixCorpus",
    "Onset",
    "Pca",
    "Public",
    "PublicRun",
    "Query",
    "Run",
    "Runs",
    "Stage",
    "Sweep",
    "Whole",
    "Windows",
    "load",
    "load_sweep",
    "read_yaml",
    "require",
    "scales",
]
