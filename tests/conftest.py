"""Settings of all tests: one thread, no network, no telling of progress."""

import os

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["TQDM_DISABLE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.pop("PTQ_DYNAMICS_WARM", None)

from hypothesis import settings

settings.register_profile("project", deadline=None, print_blob=True, max_examples=50)
settings.load_profile("project")
