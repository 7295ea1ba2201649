"""What a scale's jobs are assumed to take, until records of the scale say what they took.

Times are those of one device where the scale has one, else of as many threads as the scale says.
"""

from typing import Annotated

from pydantic import Field

from ptq_dynamics.base.fields import Count, Rate, Strict

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Margin = Annotated[float, Field(ge=1, allow_inf_nan=False)]


class Device(Strict):
    """A GPU: its `model` as the cluster calls it (null: any), its `memory` in GiB, and how many a
    machine has."""

    model: str | None
    memory: Rate
    per_machine: Count


class Quantizing(Strict):
    """A method, for one checkpoint: forward `passes` over the calibration text, or time worth so
    many, and `seconds` beside."""

    passes: Amount
    seconds: Amount


class QuantizingBy(Strict):
    """Every method of quantizers."""

    gptq: Quantizing
    gptqmodel: Quantizing
    autogptq: Quantizing
    awq: Quantizing
    int8: Quantizing
    nf4: Quantizing
    rtn: Quantizing


class Products(Strict):
    """Hessian-vector products at one checkpoint: until the `sharpness` is known, and for each
    `eigenvalue` of a spectrum."""

    sharpness: Rate
    eigenvalue: Rate


class Questions(Strict):
    """A task of which all documents are taken: so many `sequences`, a choice each, of so many
    `tokens` with their shots."""

    sequences: Count
    tokens: Count


class Answering(Strict):
    """Tasks: `choices` of a document where documents are counted, and `seconds` a job takes to read
    and to join them; what they are where all documents are taken, by name."""

    choices: Count
    seconds: Amount
    whole: dict[str, Questions] = {}


class Memory(Strict):
    """Memory: what a process has in GiB before it computes; bytes of a parameter where a model is
    trained (weights, gradients, moments), evaluated, quantized, or probed for its curvature; bytes
    that are kept of a token for its gradient, times width and layers: `activations`."""

    process: Rate
    training: Rate
    evaluation: Rate
    quantization: Rate
    probing: Rate
    activations: Amount


class Margins(Strict):
    """Factors from what is expected to what is asked for."""

    time: Margin
    memory: Margin


class Assumptions(Strict):
    """`training` and `evaluation` are sustained FLOP/s (6 a parameter and token, and 2), `disk` and
    `network` bytes/s, `text` tokens/s that become token files; a `document` that quantizers are
    calibrated on has so many tokens. Seconds: to `start` a process with its libraries, of
    `each_pass` forward whatever its size (a backward pass takes two), to open a `checkpoint`, to
    draw a `figure` or make a table, to install an `environment`. `gpus` of a training job; other
    jobs have as many as their model needs."""

    device: Device | None
    gpus: Count = 1
    training: Rate
    evaluation: Rate
    disk: Rate
    network: Rate
    text: Rate
    document: Count
    start: Amount
    each_pass: Amount
    checkpoint: Amount
    figure: Amount
    environment: Amount
    quantization: QuantizingBy
    products: Products
    tasks: Answering
    memory: Memory
    margins: Margins
