"""The types of the files under config/, and how they are read.

Configuration holds what is built. Everything here is checked before any job starts; an error names
the file, the key, the value and what is allowed.
"""

from ptq_dynamics.config.averages import Lawa as Lawa
from ptq_dynamics.config.averages import Line as Line
from ptq_dynamics.config.averages import Tails as Tails
from ptq_dynamics.config.branches import Branch as Branch
from ptq_dynamics.config.corpora import Corpus as Corpus
from ptq_dynamics.config.corpora import DatasetsCorpus as DatasetsCorpus
from ptq_dynamics.config.corpora import Derived as Derived
from ptq_dynamics.config.corpora import DialoguesCorpus as DialoguesCorpus
from ptq_dynamics.config.corpora import EmbeddedCorpus as EmbeddedCorpus
from ptq_dynamics.config.corpora import MixCorpus as MixCorpus
from ptq_dynamics.config.figures import Figure as Figure
from ptq_dynamics.config.figures import Landscapes as Landscapes
from ptq_dynamics.config.figures import Losses as Losses
from ptq_dynamics.config.figures import Onset as Onset
from ptq_dynamics.config.figures import Pca as Pca
from ptq_dynamics.config.figures import Windows as Windows
from ptq_dynamics.config.kinds import Point as Point
from ptq_dynamics.config.kinds import Trajectory as Trajectory
from ptq_dynamics.config.kinds import require as require
from ptq_dynamics.config.kinds import tokenized as tokenized
from ptq_dynamics.config.loading import Config as Config
from ptq_dynamics.config.loading import load as load
from ptq_dynamics.config.loading import load_sweep as load_sweep
from ptq_dynamics.config.loading import read_yaml as read_yaml
from ptq_dynamics.config.loading import scales as scales
from ptq_dynamics.config.models import ModelShape as ModelShape
from ptq_dynamics.config.public import Public as Public
from ptq_dynamics.config.public import PublicRun as PublicRun
from ptq_dynamics.config.quantizers import Calibrated as Calibrated
from ptq_dynamics.config.queries import Query as Query
from ptq_dynamics.config.queries import Sweep as Sweep
from ptq_dynamics.config.runs import Run as Run
from ptq_dynamics.config.runs import Whole as Whole
from ptq_dynamics.config.stages import Stage as Stage
from ptq_dynamics.config.tasks import HarnessTask as HarnessTask
from ptq_dynamics.config.tasks import MadeTask as MadeTask
from ptq_dynamics.config.trajectories import Runs as Runs
