"""Settings of all tests: one thread, no network, no telling of progress."""

import os
import signal
from pathlib import Path

# Processes that tests start run the code beside the tests, too.
os.environ["PYTHONPATH"] = str(Path(__file__).parents[1] / "workflow")
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["TQDM_DISABLE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.pop("PTQ_DYNAMICS_WARM", None)
os.environ.pop("PTQ_DYNAMICS_PROCESSES", None)
os.environ.pop("PTQ_DYNAMICS_GPUS", None)

import setuptools  # noqa: F401  else torch's compiler may find Python's own distutils
from hypothesis import settings

settings.register_profile("project", deadline=None, print_blob=True, max_examples=50)
settings.load_profile("project")

# What runs in the background ignores interrupts, and so would the processes that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
