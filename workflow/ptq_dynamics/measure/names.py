"""Names of files, columns and metrics that several rooms share."""

from typing import Final, Literal

FULL_PRECISION = "fp"  # quantizer and method of full-precision weights

# Libraries of GPTQ, by method.
BACKENDS = {"gptq": "llm-compressor", "gptqmodel": "GPTQModel", "autogptq": "AutoGPTQ"}

LOSSES = "losses.safetensors"  # loss of every block, by checkpoint id
LAYERS = "layers.csv"  # errors of quantized layers, by checkpoint id
OUTCOMES = "outcomes.safetensors"  # 0 or 1 for every document, by task and checkpoint id
VALUES = "values.csv"  # CHECKPOINT_ID, METRIC, VALUE and ERROR of a probe or a metric
MEASUREMENTS = "measurements.csv"  # the table of measurements

# Columns of tables.
TRAJECTORY = "trajectory"
SEED = "seed"
QUANTIZER = "quantizer"
CHECKPOINT_ID = "checkpoint_id"
STEP = "step"
TOKENS = "tokens"
TASK = "task"
METRIC = "metric"
VALUE = "value"
ERROR = "stderr"

# Metrics of losses: the loss, its increase δ (nats), and the quantization error (section 2).
LOSS: Final = "loss"
INCREASE: Final = "loss_increase"
QUANTIZATION_ERROR: Final = "quantization_error"
Paired = Literal["loss", "loss_increase", "quantization_error"]
# Metrics of quantized layers.
WEIGHT_ERROR: Final = "weight_mse"
OUTPUT_ERROR: Final = "output_mse"
OUTPUT_RELATIVE = "output_relative"
LAYER_METRICS = (WEIGHT_ERROR, OUTPUT_ERROR)
# Metrics of the Hessian.
SHARPNESS: Final = "sharpness"
TRACE: Final = "hessian_trace"
EIGENVALUES: Final = "eigenvalues"
EIGENVALUE = "eigenvalue_"  # followed by its rank from 01
# Metrics of a run's last checkpoint (`measure.carried`).
CARRIED = "carried"
CARRIED_BY_ONE = "carried_by_one"
GAIN = "gain"
# Metrics of downstream tasks. MEAN in the column of tasks is the mean over tasks.
ACCURACY: Final = "accuracy"
DEGRADATION: Final = "accuracy_degradation"
TASK_METRICS = (ACCURACY, DEGRADATION)
MEAN = "mean"

Evaluated = Literal[Paired, "weight_mse", "output_mse"]
OfRuns = Literal[
    Evaluated, "sharpness", "hessian_trace", "eigenvalues", "gradient_norm", "weight_norm"
]
Metric = Literal[OfRuns, "accuracy", "accuracy_degradation"]
ErrorOrCurvature = Literal[
    "quantization_error", "loss_increase", "weight_mse", "output_mse", "sharpness", "hessian_trace"
]
# Metrics of quantized weights.
QUANTIZED = frozenset({QUANTIZATION_ERROR, INCREASE, *LAYER_METRICS, DEGRADATION})
