"""Training dynamics and post-training quantization robustness: the stages of the workflow."""

__version__ = "0.2.0"
