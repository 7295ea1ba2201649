"""Labels of what jobs need. Planning writes them, stages read them, and rules name their first
words. `Series.label` gives those of measurements."""

CORPUS, FUNCTIONS, TRAJECTORY, ENVIRONMENT = "corpus", "functions", "trajectory", "environment"
CHECKPOINT = "checkpoint"  # its tokenizer is that of a corpus
TRUNK, WEIGHTS, AFTER = "trunk", "weights", "after"  # what a run continues
COMPONENTS, CLAIMS, TABLES, MEASUREMENTS = "components", "claims", "tables", "measurements"


def run(name: str, seed: int) -> str:
    """Return the label of a run at a seed."""
    return f"run {name} seed {seed}"


def task(name: str) -> str:
    """Return the label of a task."""
    return f"task {name}"


def quantized(quantizer: str) -> str:
    """Return the label of quantized weights."""
    return f"quantized {quantizer}"


def landscape(trajectory: str, quantizer: str) -> str:
    """Return the label of a landscape of a figure."""
    return f"landscape {trajectory} {quantizer}"


def figure(name: str) -> str:
    """Return the label of a figure."""
    return f"figure {name}"
