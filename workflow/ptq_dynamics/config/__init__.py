"""The types of the files under config/, and their validation before any job starts."""

# ruff: noqa: F401 (other rooms import these names from this package)
from ptq_dynamics.config.errors import require
from ptq_dynamics.config.loading import TYPES, Config, load, read_file, read_yaml, scales, schema
