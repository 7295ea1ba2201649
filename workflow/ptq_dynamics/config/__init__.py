"""The types of the files under config/, and how they are read.

Configuration holds what is built. Everything here is checked before any job starts; an error names
the file, the key, the value and what is allowed.
"""

from ptq_dynamics.config.averages import Lawa, Line, Tails
from ptq_dynamics.config.fields import SCALES
from ptq_dynamics.config.figures import Figure, Landscapes, Losses, Pca, Windows
from ptq_dynamics.config.kinds import Point, Trajectory, require, tokenized
from ptq_dynamics.config.loading import Config, load, load_sweep, read_yaml
from ptq_dynamics.config.models import ModelShape
from ptq_dynamics.config.quantizers import Calibrated
from ptq_dynamics.config.queries import Evaluated, Query, Sweep
from ptq_dynamics.config.runs import Branch, Run, Runs, Whole
from ptq_dynamics.config.scale import DatasetsCorpus, EmbeddedCorpus
from ptq_dynamics.config.schemas import schemas

__all__ = [
    "SCALES",
    "Branch",
    "Calibrated",
    "Config",
    "DatasetsCorpus",
    "EmbeddedCorpus",
    "Evaluated",
    "Figure",
    "Landscapes",
    "Lawa",
    "Line",
    "Losses",
    "ModelShape",
    "Pca",
    "Point",
    "Query",
    "Run",
    "Runs",
    "Sweep",
    "Tails",
    "Trajectory",
    "Whole",
    "Windows",
    "load",
    "load_sweep",
    "read_yaml",
    "require",
    "schemas",
    "tokenized",
]
