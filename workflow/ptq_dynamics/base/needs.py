"""Labels of what jobs need. Planning writes them, stages read them, and rules name their first
words. Averages name their sources themselves."""

CORPUS, FUNCTIONS, TRAJECTORY, ENVIRONMENT = "corpus", "functions", "trajectory", "environment"
CHECKPOINT = "checkpoint"  # its tokenizer is that of a corpus
TRUNK, WEIGHTS, AFTER = "trunk", "weights", "after"  # what a run continues
COMPONENTS, CLAIMS, TABLES, MEASUREMENTS = "components", "claims", "tables", "measurements"
MEASURE = "measure"  # the first word of labels of measurements


def measured(trajectory: str, seed: int | str | None, quantizer: str, kind: str = MEASURE) -> str:
    """Return the label of measurements, or of a `kind` of probe, of a series."""
    return f"{kind} {trajectory} seed {seed} {quantizer}"


def beside_mean(name: str) -> str:
    """Return the label of a task that the mean over tasks leaves out."""
    return f"beside the mean {name}"


def kind_of(label: str) -> str:
    """Return the first word of a label."""
    return label.split()[0]


def run(name: str, seed: int | str) -> str:
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


def path(trajectory: str, seed: int) -> str:
    """Return the label of a trajectory whose principal components a figure shows."""
    return f"{trajectory} seed {seed}"


def figure(name: str) -> str:
    """Return the label of a figure."""
    return f"figure {name}"
