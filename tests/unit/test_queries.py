"""What a figure asks for: the jobs of its metrics, and one line where it cannot be drawn."""

import pytest
from drawing import figure, planned
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.figures.layout import MOST_CURVES

ERROR, LOSS = "quantization_error", "loss"
RUNS = ["constant-3e-3", "rainbow-036"]

# Planning


KINDS = {
    (LOSS,): {"measure"},
    (ERROR, "weight_mse"): {"measure"},
    ("sharpness",): {"sharpness"},
    ("hessian_trace", LOSS): {"measure", "sharpness"},
    ("eigenvalues",): {"spectrum"},
    ("weight_norm",): set(),
}


@pytest.mark.parametrize("metrics", KINDS, ids=" ".join)
def test_a_figure_needs_the_jobs_of_its_metrics_alone(tmp_path, metrics):
    quantizers = ["gptq-4bit"] if ERROR in metrics else []
    curves = {"Stable": ["constant-3e-3"]}
    found = figure("dynamics", curves, quantizers, metrics=list(metrics))
    plan = planned(tmp_path, {"one": found})
    kinds = {label.split()[0] for label in plan.figures.figure("one").inputs}
    assert kinds == KINDS[metrics] | {"run"}


def test_title_and_caption_are_no_part_of_a_job(tmp_path):
    found = figure("losses", {"Stable": ["constant-3e-3"]}, ["int8"])
    one, other = (
        planned(tmp_path / name, {"one": {**found, **words}}).figures.figure("one").spec
        for name, words in (("a", {}), ("b", {"title": "Other", "caption": "words"}))
    )
    assert one == other


# What cannot be drawn


CURVES = {"One": ["constant-3e-3"]}
MANY = {f"Curve {n}": RUNS[:1] for n in range(MOST_CURVES + 1)}
REFUSED = [
    ({**figure("over_tokens", CURVES, ["int8"]), "layout": "rain"}, ["layout", "'rain'"]),
    (figure("losses", CURVES, [], metrics=["los"]), ["metrics.0", "'los'"]),
    (figure("over_tokens", CURVES, [], metrics=["sharpness"]), ["metrics.0", "'sharpness'"]),
    (figure("over_tokens", CURVES, []), ["quantizers", ERROR]),
    (figure("losses", MANY, ["int8"]), ["curves", str(MOST_CURVES)]),
    (
        figure("landscapes", {"One": ["wsd-3e-3"]}, ["int8"], landscape={"previous": "100/190"}),
        ["landscape.previous", "wsd-3e-3", "nearest"],
    ),
    (
        figure("losses", CURVES, [], metrics=[LOSS], options={"losses_of": ["int8"]}),
        ["options.losses_of", "allowed: against"],
    ),
    (
        figure("dynamics", {"One": ["lawa-20"]}, [], metrics=["weight_norm"]),
        ["metrics", "weight_norm", "lawa-20"],
    ),
    (figure("pca", {"One": [RUNS[0], "kumar-70m-wsd-13"]}, []), ["curves", "kumar-70m"]),
]


@pytest.mark.parametrize(("found", "words"), REFUSED)
def test_a_figure_that_cannot_be_drawn_is_refused_in_one_line(tmp_path, found, words):
    with pytest.raises(Problem) as caught:
        planned(tmp_path, {"one": found})
    message = str(caught.value)
    assert "config/figures.yaml: one" in message and "\n" not in message
    missing = [word for word in words if word not in message]
    assert not missing, f"{missing} not in: {message}"
