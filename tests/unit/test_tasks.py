"""Downstream tasks: those made from held-out documents, and those of the harness."""

import hashlib
from collections import Counter

import pandas as pd
import pytest
from lm_eval.tasks.pubmedqa import preprocess_pubmedqa
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.corpus import functions, packages
from ptq_dynamics.corpus.packages import installed_files, python_files
from ptq_dynamics.engine import manifest
from ptq_dynamics.engine.context import Context, Progress
from ptq_dynamics.measure import questions
from ptq_dynamics.measure.answers import load_parts
from ptq_dynamics.measure.tasks import harness
from ptq_dynamics.measure.tasks import made as making
from ptq_dynamics.measure.tasks.harness import HarnessSettings, HarnessTask
from ptq_dynamics.measure.tasks.made import MadeSettings
from support import plan
from tokenizers import Tokenizer

pytestmark = pytest.mark.slow

KINDS = list(questions.KINDS)


@pytest.fixture(scope="module")
def held_out(workspace):
    return workspace.make(workspace.plan.trajectories.functions("main"))


@pytest.fixture(scope="module")
def documents(held_out):
    """Those held out, and others, for the kinds that few of them have."""
    more = [file for file in installed_files("nltk", python_files) if "translate" in str(file)]
    found = [*functions.read_part(held_out, functions.HELD_OUT)]
    found += [each for file in more for each in packages.docstrings(file)]
    return list({each.document: each for each in found}.values())


@pytest.fixture(scope="module")
def encode(corpus):
    tokenizer = Tokenizer.from_file(str(corpus.file("tokenizer/tokenizer.json")))
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def settings(kind, **changes):
    plain = {"documents": 12, "pool": 6, "shots": 1, "context": 256}
    return MadeSettings(name=f"a-{kind}", kind=kind, **{**plain, **changes})


@pytest.fixture(scope="module")
def made(documents, encode):
    return {kind: making.make(settings(kind), documents, encode) for kind in KINDS}


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def about(item, documents):
    (found,) = [each for each in documents if digest(each.document) == item.document]
    return found


def is_right(kind, item, choice, each):
    """Whether a choice is right, by the document itself."""
    text = each.document
    match kind:
        case "signature":
            return each.signature == item.text and text.startswith(choice)
        case "next-line" | "prose":
            follows = f"\n{item.text}\n{choice}"
            ends = ("\n", " ") if kind == "next-line" else ("\n",)
            return any(follows + end in f"\n{text}\n" for end in ends)
        case "word":
            return f"{item.text} {choice} " in text
        case "ending":
            return item.text + choice in text
        case "first-sentence":
            return text.startswith(f"{choice}\n\n") and item.text in text
        case "parameter":
            said = item.text.split(": ")[-1]
            lines = text[: text.index(said) + len(said)].split("\n")[-2:]
            return any(choice in line.split(":")[0] + line for line in lines)
        case "type":
            return any(item.text in line and choice in line for line in text.split("\n"))


@pytest.mark.parametrize("kind", KINDS)
def test_right_answers_are_right_and_wrong_ones_are_others(made, documents, kind):
    test, shots = made[kind]
    choices = questions.KINDS[kind].choices
    assert len(test) == 12 and len(shots) == 6
    wrong = 0
    for item in (*test, *shots):
        each = about(item, documents)
        assert len(set(item.choices)) == choices
        assert is_right(kind, item, item.choices[item.answer], each), (item, each.document)
        others = [choice for at, choice in enumerate(item.choices) if at != item.answer]
        wrong += sum(is_right(kind, item, choice, each) for choice in others)
    # Another letter or word may stand there by chance elsewhere.
    assert wrong <= 2
    counts = Counter(item.answer for item in test)
    assert set(counts) == set(range(choices)) and max(counts.values()) == 12 // choices
    assert len({item.document for item in (*test, *shots)}) == 18


def test_nothing_held_out_says_what_was_learned(held_out):
    train, asked = (functions.read_part(held_out, n) for n in (functions.TRAIN, functions.HELD_OUT))
    learned = {(each.signature, each.summary) for each in train}
    assert learned and not learned & {(each.signature, each.summary) for each in asked}


@pytest.mark.parametrize("changes", [{"documents": 9999}, {"context": 30, "shots": 5}])
def test_too_few_documents_are_said_in_one_line(documents, encode, changes):
    with pytest.raises(Problem, match=r"task a-ending has \d+ documents of at most ") as error:
        making.make(settings("ending", **changes), documents, encode)
    assert "\n" not in str(error.value)


def fetched(folder, **changes):
    """The result of fetching a task, as its stage gives it."""
    plain = {"source": "harness", "task": "pubmedqa", "revision": "0" * 40}
    chosen = HarnessSettings(name="mine", task=HarnessTask(**{**plain, **changes}))
    out = folder / "out"
    out.mkdir(parents=True)
    facts = harness.run(Context("mine", chosen, {}, out, folder / "scratch", Progress("mine")))
    return manifest.describe(out, out / "manifest.json", facts)


ROWS = [
    {
        "QUESTION": f"Is it {n}?",
        "CONTEXTS": [f"Part 1 of {n}.", "Another."],
        "LABELS": ["A", "B"],
        "LONG_ANSWER": "Long.",
        "final_decision": ["yes", "no", "maybe"][n % 3],
    }
    for n in range(7)
]


def test_pubmedqa_from_parquet_is_what_the_harness_makes_of_it(tmp_path):
    parts = {"train": ROWS[:3], "validation": ROWS[3:5], "test": ROWS[5:]}
    for split, rows in parts.items():
        place = tmp_path / "pubmed/pubmed_qa_labeled_fold0_source" / split
        place.mkdir(parents=True)
        pd.DataFrame(rows).to_parquet(place / "0000.parquet")
    files = plan("paper").site.config.tasks["pubmedqa"].files
    result = fetched(tmp_path, repository=str(tmp_path / "pubmed"), files=files)
    ((part, task),) = load_parts(result)
    assert (part.name, part.metric, set(part.splits)) == ("pubmedqa", "acc", {*parts})
    assert len(task.eval_docs) == len(parts["test"])
    for document, row in zip(task.eval_docs, parts["test"], strict=True):
        assert task.doc_to_text(document) == preprocess_pubmedqa.doc_to_text(row)
        assert task.doc_to_target(document) == row["final_decision"]
        assert task.doc_to_choice(document) == ["yes", "no", "maybe"]
    assert [dict(each) for each in task.fewshot_docs()] == parts["train"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"task": "arc_eazy"}, "mine.task: .* has no task 'arc_eazy'"),
        ({"task": "arc_easy"}, "mine: the data set cannot be loaded"),
        ({"task": "gsm8k", "repository": True}, "mine.task needs acc or acc_norm by likelihood"),
    ],
)
def test_a_task_that_cannot_be_taken_is_said_in_one_line(tmp_path, changes, said):
    if "repository" in changes:
        for split in ("train", "test"):
            rows = pd.DataFrame({"question": ["1 + 1?"], "answer": ["It is 2. #### 2"]})
            rows.to_parquet(tmp_path / f"{split}.parquet")
        files = {split: f"{split}.parquet" for split in ("train", "test")}
        changes = {**changes, "repository": str(tmp_path), "files": files}
    with pytest.raises(Problem, match=said) as error:
        fetched(tmp_path, **changes)
    assert "\n" not in str(error.value)
