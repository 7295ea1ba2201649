"""Environment of every job, which keeps the libraries it uses quiet."""

# Libraries' own progress bars and hints would bury the progress lines of jobs; tokenizers' threads
# do not survive a fork.
QUIET = {
    "TQDM_DISABLE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
    # It warns on import that there is no GPU. Its switch that is for this breaks it.
    "LLM_COMPRESSOR_LOG_LEVEL": "ERROR",
}
