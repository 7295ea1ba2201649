"""What a figure asks for: one line where it cannot be drawn."""

import pytest
from drawing import figure, planned
from ptq_dynamics.figures.layout import MOST_CURVES
from support import one_line

ERROR, LOSS = "quantization_error", "loss"
RUNS = ["constant-3e-3", "rainbow-036"]


CURVES = {"One": ["constant-3e-3"]}
GROUPED = {"A: One": RUNS[:1], "B: One": RUNS[1:]}
MANY = {f"Curve {n}": RUNS[:1] for n in range(MOST_CURVES + 1)}
REFUSED = [
    ({**figure("over_tokens", CURVES, ["int8"]), "layout": "rain"}, ["layout", "'rain'"]),
    (figure("over_tokens", CURVES, [], metrics=["los"]), ["metrics.0", "'los'"]),
    (figure("over_tokens", CURVES, []), ["quantizers", ERROR]),
    (figure("over_tokens", MANY, ["int8"]), ["curves", str(MOST_CURVES)]),
    (
        figure("landscapes", {"One": ["wsd-3e-3"]}, ["int8"], landscape={"previous": "100/190"}),
        ["landscape.previous", "wsd-3e-3", "nearest"],
    ),
    (
        figure("over_tokens", CURVES, [], metrics=[LOSS], options={"losses_of": ["int8"]}),
        ["options.losses_of", "allowed: quantized_losses"],
    ),
    (
        figure("over_tokens", {"One": ["lawa-20"]}, [], metrics=["weight_norm"]),
        ["curves", "weight_norm", "lawa-20"],
    ),
    *(
        (figure("over_tokens", curves, ["int8"], metrics=[LOSS], options=options), words)
        for curves, options, words in (
            (CURVES, {"x": "age"}, ["curves", "options.x is 'age'", "interval"]),
            (CURVES, {"x": "share"}, ["curves has constant-3e-3", "options.x is 'share'"]),
            (GROUPED, {"words": True}, ["curves", "'A: One'", "options.words"]),
            (GROUPED, {"quantized_losses": "within"}, ["'A: One'", "quantized_losses"]),
            (CURVES, {"quantized_losses": "within", "x": "budget"}, ["within", "'tokens'"]),
        )
    ),
    (figure("over_tokens", CURVES, ["int8"], options={"quantized_losses": "beside"}), ["loss"]),
    (
        figure("parametric", CURVES, ["int8"], metrics=[LOSS], options={"against": ["tokens"]}),
        ["options.against", "loss"],
    ),
    (figure("pca", {"One": [RUNS[0], "kumar-70m-wsd-13"]}, []), ["curves", "kumar-70m"]),
]


@pytest.mark.parametrize(("found", "words"), REFUSED)
def test_a_figure_that_cannot_be_drawn_is_refused_in_one_line(tmp_path, found, words):
    with one_line("config/figures.yaml: one", *words):
        planned(tmp_path, {"one": found})
