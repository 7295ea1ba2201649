"""Names that claims have beside those of measurements."""

from typing import Final, Literal

# How far quantization moves the weights, ‖Θ − Θ̂‖, and the fact of a landscape that says so.
DISTANCE: Final = "weight_distance"
DISTANCE_FACT = "distance_quantized"

ClaimMetric = Literal[
    "loss",
    "loss_increase",
    "quantization_error",
    "weight_mse",
    "output_mse",
    "accuracy",
    "accuracy_degradation",
    "sharpness",
    "hessian_trace",
    "gradient_norm",
    "weight_norm",
    "weight_distance",
]
