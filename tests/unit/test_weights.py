"""Means written tensor by tensor: equal bits, little memory, one line where checkpoints differ."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.train import weights
from ptq_dynamics.train.average import weighted_mean, write_mean
from ptq_dynamics.train.weights import INDEX
from safetensors.torch import load_file, save_file
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

SHAPES = {"a": (3, 5), "b": (7,), "c": (), "d": (2, 2, 2), "e": (0, 4)}
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


def whole(states, shares):
    """The mean of state dicts that are all in memory."""
    scale = sum(shares)
    return {
        name: (
            sum(
                (state[name].double() * share for state, share in zip(states, shares, strict=True)),
                torch.zeros_like(value, dtype=torch.float64),
            )
            / scale
        ).to(value.dtype)
        for name, value in states[0].items()
    }


def random(seed, count, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return [
        {name: torch.randn(shape, generator=generator).to(dtype) for name, shape in SHAPES.items()}
        for _ in range(count)
    ]


def save(folder, state, parts=None):
    """A checkpoint's weights in one file, or in several, by the number of each tensor's file."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    if parts is None:
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
        return
    homes = {name: f"model-{part:05d}.safetensors" for name, part in parts.items()}
    for file in set(homes.values()):
        inside = {name: state[name] for name in state if homes[name] == file}
        save_file(inside, folder / file, metadata={"format": "pt"})
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": homes}))


def load(folder):
    state = {}
    for path in folder.glob("*.safetensors"):
        state |= load_file(path)
    return state


def same(one, other):
    return one.keys() == other.keys() and all(
        one[n].dtype == other[n].dtype and torch.equal(one[n], other[n]) for n in one
    )


parts = st.none() | st.fixed_dictionaries({name: st.integers(0, 3) for name in SHAPES})
members = st.lists(st.tuples(parts, st.floats(0.01, 10.0)), min_size=1, max_size=4)


@given(members, st.integers(0, 2**31), st.sampled_from(DTYPES), st.sampled_from([1, 16, 1 << 20]))
def test_a_mean_has_the_bits_of_whole_state_dicts_however_members_are_split(
    found, seed, dtype, block
):
    states, shares = random(seed, len(found), dtype), [share for _, share in found]
    expected = whole(states, shares)
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(weights, "BLOCK", block)
        folders = [Path(name) / str(number) for number in range(len(found))]
        for folder, state, (split, _) in zip(folders, states, found, strict=True):
            save(folder, state, split)
        mean, last = Path(name) / "mean", folders[-1]
        write_mean(mean, folders, shares)
        assert same(load(mean), expected)
        # In files like those of the last one, to the byte.
        save(Path(name) / "expected", expected, found[-1][0])
        files = {path.name: path.read_bytes() for path in mean.iterdir()}
        wanted = {path.name: path.read_bytes() for path in (Path(name) / "expected").iterdir()}
        assert files == wanted and files.keys() == {path.name for path in last.iterdir()}


def test_models_that_the_library_splits_are_averaged(tmp_path):
    shape = {"vocab_size": 40, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2}
    models = [GPTNeoXForCausalLM(GPTNeoXConfig(**shape, intermediate_size=20)) for _ in range(3)]
    for number, (model, size) in enumerate(zip(models, ["1GB", "4KB", "2KB"], strict=True)):
        model.save_pretrained(tmp_path / str(number), max_shard_size=size)
    folders = [tmp_path / str(number) for number in range(3)]
    assert [len(list(folder.glob("*.safetensors"))) > 1 for folder in folders] == [
        False,
        True,
        True,
    ]
    write_mean(tmp_path / "mean", folders, [1.0, 2.0, 3.0])
    names = [
        {path.name for path in folder.iterdir()} for folder in (folders[-1], tmp_path / "mean")
    ]
    assert names[0] == names[1]
    mean = GPTNeoXForCausalLM.from_pretrained(tmp_path / "mean").state_dict()
    assert same(mean, whole([model.state_dict() for model in models], [1.0, 2.0, 3.0]))


def test_a_mean_of_whole_numbers_is_rounded():
    """As of masks and positions, which older checkpoints hold."""
    shares = [0.1, 0.2, 0.4]
    state = {"positions": torch.arange(50), "mask": torch.tensor([True, False])}
    assert same(weighted_mean([state] * 3, shares), state)
    cut = [(sum(n * share for share in shares) / sum(shares)) // 1 for n in range(50)]
    assert cut != list(range(50)), "or a mean that is cut off would do as well"


# Checkpoints that do not fit together

DIFFERENT = {
    "a tensor less": (lambda state: state.pop("b"), r"0 has no tensor b, which \S+2 has"),
    "a tensor more": (
        lambda state: state.update(z=torch.ones(2)),
        r"2 has no tensor z, which \S+0 has",
    ),
    "another shape": (
        lambda state: state.update(a=torch.ones(5, 3)),
        r"0 has a as F32 \[5, 3\], but \S+2 as F32 \[3, 5\]",
    ),
    "another type": (
        lambda state: state.update(a=state["a"].bfloat16()),
        r"0 has a as BF16 \[3, 5\], but \S+2 as F32 \[3, 5\]",
    ),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_checkpoints_of_several_models_are_a_problem(tmp_path, case):
    change, message = DIFFERENT[case]
    states = random(0, 3)
    change(states[0])
    folders = [tmp_path / str(number) for number in range(3)]
    for folder, state in zip(folders, states, strict=True):
        save(folder, state)
    with pytest.raises(
        Problem, match=message + "[^\n]*; average checkpoints of one model"
    ) as caught:
        write_mean(tmp_path / "mean", folders, [1.0] * 3)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "mean").exists()


@pytest.mark.parametrize(
    ("file", "content"), [("model.safetensors", "cut"), (INDEX, "{}")], ids=["cut", "no index"]
)
def test_a_checkpoint_that_cannot_be_read_is_a_problem(tmp_path, file, content):
    for name, state in zip("ab", random(0, 2), strict=True):
        save(tmp_path / name, state)
    (tmp_path / "a" / file).write_text(content)
    with pytest.raises(Problem, match=r"a holds no readable weights .*rebuild it"):
        write_mean(tmp_path / "mean", [tmp_path / "a", tmp_path / "b"], [1.0, 1.0])
