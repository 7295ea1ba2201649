"""Downstream tasks: those made from held-out documents, and those of the harness."""

import hashlib
import json
import shutil
from collections import Counter

import pandas as pd
import pytest
import yaml
from lm_eval.tasks.pubmedqa import preprocess_pubmedqa
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.corpus import functions
from ptq_dynamics.corpus.packages import installed_files, python_files
from ptq_dynamics.engine import manifest
from ptq_dynamics.engine.context import Context, Progress
from ptq_dynamics.measure import questions
from ptq_dynamics.measure.answers import load as load_task
from ptq_dynamics.measure.tasks import harness
from ptq_dynamics.measure.tasks import made as making
from ptq_dynamics.measure.tasks.harness import HarnessSettings, HarnessTask
from ptq_dynamics.measure.tasks.made import MadeSettings, MadeTask
from support import ROOT, edit_yaml, plan, tiny_config
from tokenizers import Tokenizer

KINDS = list(questions.KINDS)


@pytest.fixture(scope="module")
def held_out(workspace):
    return workspace.make(workspace.plan.corpora.functions("main"))


@pytest.fixture(scope="module")
def documents(held_out):
    """Those held out, and others, for the kinds that few of them have."""
    more = [file for file in installed_files("nltk", python_files) if "translate" in str(file)]
    found = [*functions.load(held_out, functions.HELD_OUT)]
    found += [each for file in more for each in functions.read(file)]
    return list({each.document: each for each in found}.values())


@pytest.fixture(scope="module")
def encode(corpus):
    tokenizer = Tokenizer.from_file(str(corpus.file("tokenizer/tokenizer.json")))
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def settings(kind, **changes):
    plain = {"documents": 12, "pool": 6, "shots": 1, "context": 256}
    task = MadeTask(source="made", kind=kind)
    return MadeSettings(name=f"a-{kind}", task=task, **{**plain, **changes})


@pytest.fixture(scope="module")
def made(documents, encode):
    found = {}
    for kind in KINDS:
        try:
            found[kind] = making.make(settings(kind), documents, encode)
        except Problem as problem:
            found[kind] = str(problem)
    return found


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
            follows = f"{item.text}\n{choice}"
            ends = ("\n", " ", "") if kind == "next-line" else ("\n", "")
            return any(follows + end in text + "\n" for end in ends if end) or text.endswith(
                follows
            )
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


@pytest.mark.parametrize("kind", KINDS)
def test_places_are_balanced_and_every_document_is_asked_about_once(made, held_out, kind):
    test, shots = made[kind]
    counts = Counter(item.answer for item in test)
    choices = questions.KINDS[kind].choices
    assert set(counts) == set(range(choices)) and max(counts.values()) == 12 // choices
    asked = [item.document for item in (*test, *shots)]
    assert len(set(asked)) == len(asked)
    train = functions.load(held_out, functions.TRAIN)
    assert not {digest(each.document) for each in train} & {*asked}


def test_nothing_held_out_says_what_was_learned(held_out):
    train, asked = (functions.load(held_out, n) for n in (functions.TRAIN, functions.HELD_OUT))
    learned = {(each.signature, each.summary) for each in train}
    assert learned and not learned & {(each.signature, each.summary) for each in asked}


def test_questions_are_the_same_whatever_the_order_of_documents(made, documents, encode):
    again = making.make(settings("word"), documents[::-1], encode)
    assert again == made["word"]


def test_a_job_writes_the_same_bytes_again_and_no_path(workspace, held_out):
    job = workspace.plan.measuring.made("word", "main")
    first = workspace.make(job)
    before = {name: first.file(name).read_bytes() for name in first.files}
    again = workspace.build(job)
    assert before == {name: again.file(name).read_bytes() for name in again.files}
    assert not [name for name, data in before.items() if str(workspace.folder).encode() in data]
    assert yaml.safe_load(before["task.yaml"])["dataset_kwargs"]["data_files"] == {
        "test": "test.jsonl",
        "shots": "shots.jsonl",
    }


@pytest.mark.parametrize("changes", [{"documents": 9999}, {"context": 30, "shots": 5}])
def test_too_few_documents_are_said_in_one_line(documents, encode, changes):
    with pytest.raises(Problem, match=r"task a-ending has \d+ documents with \d+ tokens") as error:
        making.make(settings("ending", **changes), documents, encode)
    assert "\n" not in str(error.value)


def test_the_harness_takes_a_made_task(workspace, held_out):
    result = workspace.make(workspace.plan.measuring.made("word", "main"))
    ((part, task),) = load_task(result)
    lines = [json.loads(line) for line in result.file("test.jsonl").read_text().splitlines()]
    assert part.metric == "acc" and len(task.eval_docs) == len(lines)
    for line, document in zip(lines, task.eval_docs, strict=True):
        assert task.doc_to_text(document) == line["text"]
        assert task.doc_to_choice(document) == line["choices"]
        assert task.doc_to_target(document) == line["answer"]


# Configuration


def tasks_of(change, folder):
    config = tiny_config(folder)
    edit_yaml(config / "scales/smoke.yaml", lambda scale: change(scale["tasks"]))
    return plan("smoke", config)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.update(names=["wrod"]), r"tasks.names names no known task: 'wrod' .*word"),
        (
            lambda t: t.update(others=["Click"]),
            "others has 'Click', which corpora.descriptions reads",
        ),
        (lambda t: t.update(context=None), "tasks.context is null"),
        (lambda t: t.update(context=4096), r"tasks.context is 4,096, and .* reads \d+ tokens"),
        (lambda t: t.update(shots=5), "tasks.pool is 4, and word has 5 shots"),
        (lambda t: t.update(at_chance=["prose"]), "at_chance has 'prose', which names has not"),
        (lambda t: t.update(at_chance=["word", "ending"]), "leaves no task for the mean"),
    ],
)
def test_a_mistake_in_tasks_is_said_in_one_line(tmp_path, change, said):
    with pytest.raises(Problem, match=said):
        tasks_of(change, tmp_path)


def test_prompts_of_released_models_are_longer_than_blocks():
    """5 examples of MMLU's longest subjects take more than the blocks that losses are measured on;
    what is trained here reads no more than in training."""
    found = plan("paper")
    (shard, *_) = found.site.timeline.shards("smollm3")
    settings = found.measuring.measure("smollm3", "fp", shard).settings
    assert {each.context for each in settings.tasks} == {4096} and settings.context < 4096


def test_tasks_at_chance_are_those_that_are_measured_so():
    """By full precision alone, where the stages of SmolLM3's miniature end."""
    config = plan("laptop").site.config
    chosen, table = config.scale.tasks, ROOT / "results/reference/laptop/measurements.csv"
    rows = pd.read_csv(table, dtype={"task": str}, low_memory=False)
    rows = rows[(rows.trajectory == "smollm3-main") & (rows.metric == "accuracy")]
    rows = rows[rows.quantizer == "fp"].set_index("task")
    above = {}
    for name in chosen.names:
        guessed = 1 / questions.KINDS[config.tasks[name].kind].choices
        above[name] = (rows.value[name] - guessed) / rows.stderr[name]
    assert {name for name, errors in above.items() if errors < 2} == {*chosen.at_chance}, above
    # Most are clear of chance, and not solved.
    clear = [name for name in above if name not in chosen.at_chance and rows.value[name] < 0.95]
    assert len(clear) > len(above) / 2, clear


# Where all documents are taken, the planner asks how many there are.
WHOLE = {"grammar": {"sequences": 1340, "tokens": 20}}


@pytest.mark.parametrize(("scale", "whole"), [("gpu", {}), ("paper", WHOLE)])
def test_any_task_of_the_harness_is_taken(tmp_path, scale, whole):
    def named(found):
        found["tasks"]["names"].append("grammar")
        found["resources"]["tasks"].setdefault("whole", {}).update(whole)

    config = tmp_path / "config"
    shutil.copytree(ROOT / "config", config)
    mine = {"source": "harness", "task": "blimp", "revision": "0" * 40}
    edit_yaml(config / "tasks.yaml", lambda found: found.update(grammar=mine))
    edit_yaml(config / f"scales/{scale}.yaml", named)
    found = plan(scale, config)
    shard, *_ = found.site.timeline.shards("smollm3")
    job = found.measuring.measure("smollm3", "fp", shard)
    assert job.inputs["task grammar"] == [found.measuring.fetched("grammar").manifest]
    assert found.measuring.fetched("grammar").settings.task.task == "blimp"


# Tasks of the harness


def fetched(folder, **changes):
    """The result of fetching a task, as its stage gives it."""
    plain = {"source": "harness", "task": "pubmedqa", "revision": None}
    chosen = HarnessSettings(name="mine", task=HarnessTask(**{**plain, **changes}))
    out = folder / "out"
    out.mkdir(parents=True)
    context = Context("mine", chosen, {}, out, folder / "scratch", Progress("mine"))
    facts = harness.run(context)
    return manifest.describe(out, out / "manifest.json", facts)


ROWS = [
    {
        "QUESTION": f"Is it {n}?",
        "CONTEXTS": [f"Part {i} of {n}.", "Another."],
        "LABELS": ["A", "B"],
        "LONG_ANSWER": "Long.",
        "final_decision": ["yes", "no", "maybe"][n % 3],
    }
    for n in range(7)
    for i in (1,)
]


@pytest.fixture
def pubmed(tmp_path):
    """A folder like the copy of PubMedQA in Parquet, and its rows by split."""
    folder = tmp_path / "pubmed"
    parts = {"train": ROWS[:3], "validation": ROWS[3:5], "test": ROWS[5:]}
    for split, rows in parts.items():
        place = folder / "pubmed_qa_labeled_fold0_source" / split
        place.mkdir(parents=True)
        pd.DataFrame(rows).to_parquet(place / "0000.parquet")
    return folder, parts


@pytest.mark.slow
def test_pubmedqa_from_parquet_is_what_the_harness_makes_of_it(tmp_path, pubmed):
    folder, parts = pubmed
    files = plan("paper").site.config.tasks["pubmedqa"].files
    ((part, task),) = load_task(fetched(tmp_path, repository=str(folder), files=files))
    assert (part.name, part.metric) == ("pubmedqa", "acc")
    assert set(part.splits) == {*parts}
    assert len(task.eval_docs) == len(parts["test"])
    for document, row in zip(task.eval_docs, parts["test"], strict=True):
        assert task.doc_to_text(document) == preprocess_pubmedqa.doc_to_text(row)
        assert task.doc_to_target(document) == row["final_decision"]
        assert task.doc_to_choice(document) == ["yes", "no", "maybe"]
    assert [dict(each) for each in task.fewshot_docs()] == parts["train"]


def test_nothing_is_fetched_that_is_pinned_to_no_commit(tmp_path):
    with pytest.raises(Problem, match=r"config/tasks.yaml: mine.revision is null, .* set it"):
        fetched(tmp_path)


@pytest.mark.slow
def test_an_unknown_task_of_the_harness_is_named_with_those_like_it(tmp_path):
    with pytest.raises(Problem, match=r"mine.task names no task .*'arc_eazy'.*arc_easy"):
        fetched(tmp_path, task="arc_eazy", revision="0" * 40)


@pytest.mark.slow
def test_data_out_of_reach_are_said_in_one_line(tmp_path):
    with pytest.raises(Problem, match="mine: its data set is out of reach") as error:
        fetched(tmp_path, task="arc_easy", revision="0" * 40)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_a_task_that_has_models_write_is_refused(tmp_path):
    rows = pd.DataFrame({"question": ["1 + 1?"], "answer": ["It is 2. #### 2"]})
    (tmp_path / "data").mkdir()
    for split in ("train", "test"):
        rows.to_parquet(tmp_path / f"data/{split}.parquet")
    files = {split: f"{split}.parquet" for split in ("train", "test")}
    with pytest.raises(Problem, match="has models write"):
        fetched(tmp_path, task="gsm8k", repository=str(tmp_path / "data"), files=files)
