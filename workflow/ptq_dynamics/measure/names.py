"""Names in the files that rooms hand to each other: of files, of columns, and of metrics."""

from typing import Final, Literal

# The quantizer, and the method, of weights that are not quantized.
FULL_PRECISION = "fp"

LOSSES = "losses.safetensors"  # loss of every block, by checkpoint id
LAYERS = "layers.csv"  # errors of every quantized layer of every checkpoint
OUTCOMES = "outcomes.safetensors"  # 0 or 1 for every document, by task and checkpoint id
VALUES = "values.csv"  # of a probe: CHECKPOINT, METRIC, VALUE, ERROR
MEASUREMENTS = "measurements.csv"

# Columns of tables.
TRAJECTORY = "trajectory"
SEED = "seed"
QUANTIZER = "quantizer"
CHECKPOINT = "checkpoint_id"
STEP = "step"
TOKENS = "tokens"
TASK = "task"
METRIC = "metric"
VALUE = "value"
ERROR = "stderr"

# Metrics of losses: the loss itself, δ (nats), and the quantization error (section 2).
LOSS: Final = "loss"
INCREASE: Final = "loss_increase"
QUANTIZATION_ERROR: Final = "quantization_error"
Paired = Literal["loss", "loss_increase", "quantization_error"]
# Of the layers of quantized models.
WEIGHT_ERROR: Final = "weight_mse"
OUTPUT_ERROR: Final = "output_mse"
OUTPUT_RELATIVE = "output_relative"
LAYER_METRICS = (WEIGHT_ERROR, OUTPUT_ERROR)
# Of the Hessian; the probes, each with the metrics it gives.
SHARPNESS: Final = "sharpness"
TRACE: Final = "hessian_trace"
EIGENVALUES: Final = "eigenvalues"
EIGENVALUE = "eigenvalue_"  # one of them, with its rank from 01
PROBES = {"sharpness": (SHARPNESS, TRACE), "spectrum": (EIGENVALUES,)}
# Of a run's last checkpoint: what its blocks carry of the loss (`measure.carried`).
CARRIED = "carried"
CARRIED_BY_ONE = "carried_by_one"
GAIN = "gain"
OF_BLOCKS = (CARRIED, CARRIED_BY_ONE, GAIN)
# Of downstream tasks; the mean over them stands in the column of tasks too.
ACCURACY: Final = "accuracy"
DEGRADATION: Final = "accuracy_degradation"
TASK_METRICS = (ACCURACY, DEGRADATION)
MEAN = "mean"
# Kinds of inputs: what was measured of a series (`Series.label`), and with the name of a task that
# does not count in the mean behind, that task.
MEASURED = "measure"
BESIDE = "beside the mean"

Evaluated = Literal[Paired, "weight_mse", "output_mse"]
OfRuns = Literal[
    Evaluated, "sharpness", "hessian_trace", "eigenvalues", "gradient_norm", "weight_norm"
]
Metric = Literal[OfRuns, "accuracy", "accuracy_degradation"]
ErrorOrCurvature = Literal[
    "quantization_error", "loss_increase", "weight_mse", "output_mse", "sharpness", "hessian_trace"
]
# Of quantized weights alone.
QUANTIZED = frozenset({QUANTIZATION_ERROR, INCREASE, *LAYER_METRICS, DEGRADATION})
