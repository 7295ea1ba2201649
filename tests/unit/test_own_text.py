"""Text of one's own: what is refused, and splits that take exactly the tokens they need."""

import gzip
import json
from codecs import BOM_UTF8
from dataclasses import asdict
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ptq_dynamics import models
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.corpus import splits, tokens
from ptq_dynamics.corpus.sources.datasets import load_tokenizer
from ptq_dynamics.corpus.sources.embedded import train_tokenizer
from ptq_dynamics.corpus.sources.own import OwnCorpus, Texts, joined
from ptq_dynamics.engine import manifest
from ptq_dynamics.engine.context import Context, Progress
from ptq_dynamics.hub import folders
from support import one_line
from tiny import create, edit
from tokenizers import normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

LINE = "Some wörds, and more.\n"
ROWS = "\n".join(json.dumps({"text": LINE}) for _ in range(9))
LATIN, WIDE = LINE.encode("latin-1"), "is UTF-16 or no text"


def parquet(column):
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.table({"text": column}), buffer)
    return buffer.getvalue().to_pybytes()


def texts(folder, name):
    folder.mkdir(exist_ok=True)
    files = [asdict(each) for each in folders.listed(folder, name.__eq__)]
    table = {"dataset": {"path": f"{folder}"}} if name.endswith(("jsonl", "parquet")) else {}
    return Texts(folder=str(folder), files=files, **table)


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.txt", LATIN, "a.txt is not UTF-8 (byte 6)"),
        ("a.txt", LINE.encode("utf-16"), f"a.txt {WIDE} (byte 0)"),
        ("a.txt", "слова и слова".encode("utf-16-le"), f"a.txt {WIDE} (byte 11)"),
        ("a.txt.gz", gzip.compress(LINE.encode(), mtime=0), "a.txt.gz is not UTF-8 (byte 1)"),
        ("a.jsonl", ROWS.encode() + b'\n{"text": "\xff"}', "a.jsonl is not UTF-8 (byte 379)"),
        ("a.jsonl", f'{ROWS}\n{{"text": 3'.encode(), "a.jsonl cannot be read: "),
        ("a.jsonl", f'{ROWS}\n{{"text": null}}'.encode(), "row 10 of data set "),
        ("a.parquet", parquet(["a", None]), "row 2 of data set "),
    ],
)
def test_text_that_cannot_be_read_is_refused_in_one_line(tmp_path, capfd, name, data, words):
    (tmp_path / name).write_bytes(data)
    with one_line(words, str(tmp_path / name)):
        list(texts(tmp_path, name).documents(joined))
    assert not capfd.readouterr().err


def test_a_byte_order_mark_and_ends_of_lines_are_no_text(tmp_path):
    (tmp_path / "a.txt").write_bytes(BOM_UTF8 + f"{LINE}\n{LINE}".replace("\n", "\r\n").encode())
    assert list(texts(tmp_path, "a.txt").documents(joined)) == [LINE, LINE]


def written(folder, tokenizer, text, **options):
    """Write a corpus of text by the tokenizer of a checkpoint; its facts."""
    tokenizer.save_pretrained(folder / "checkpoint/a")
    place = folder / "checkpoint"
    inputs = {"checkpoint": [manifest.describe(place, place / "manifest.json", {})]}
    corpus = OwnCorpus(source="own", vocabulary=300, text=text, probe=0, **options)
    return corpus.write(Context("own", corpus, inputs, folder, folder, Progress("own")))


def read(folder, name):
    return np.fromfile(folder / f"{name}.bin", "<u2").tolist()


def test_exactly_enough_text_is_enough_and_a_token_less_is_not(tmp_path):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/a.txt").write_text("\n\n\n".join(["Yes.", "Well, no."] * 200))
    source, ours = texts(tmp_path / "texts", "a.txt"), train_tokenizer([LINE], 300)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=ours)
    every = [each.ids for each in ours.encode_batch_fast(list(source.documents(joined)))]
    flat, sizes = [*chain(*every)], {"calibration": 700}
    sizes["validation"] = enough = len(flat) - 700
    found = written(tmp_path, tokenizer, source, **sizes)
    assert found["tokens"] == {"train": 0, "probe": 0, **sizes}
    expected = [[], flat[:enough], flat[enough:], []]
    assert [read(tmp_path, name) for name in splits.SPLITS] == expected
    with pytest.raises(Problem, match=f"has {len(flat):,} tokens, but {len(flat) + 1:,} are req"):
        written(tmp_path, tokenizer, source, **{**sizes, "calibration": 701})


@pytest.mark.parametrize("kind", ["Llama", "GPT2", "Qwen2"])
def test_text_is_split_as_tokenizer_json_says_whatever_the_class(tmp_path, kind):
    """transformers 5 reads the vocabulary alone for tokenizers of these classes."""
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/a.txt").write_text("\n\n".join(["Year 1234\tof  A b."] * 50))
    source, ours = texts(tmp_path / "texts", "a.txt"), train_tokenizer([LINE * 9], 280)
    digits = pre_tokenizers.Digits(individual_digits=True)
    ours.pre_tokenizer = pre_tokenizers.Sequence([digits, ours.pre_tokenizer])
    ours.normalizer = normalizers.Lowercase()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=ours)
    flat = [*chain(*(ours.encode(each).ids for each in source.documents(joined)))]
    tokenizer.save_pretrained(tmp_path / "checkpoint/a")
    edit(tmp_path / "checkpoint/a/tokenizer_config.json", tokenizer_class=f"{kind}Tokenizer")
    tokenizer.save_pretrained = lambda _: None
    written(tmp_path, tokenizer, source, validation=300, calibration=100)
    assert [*read(tmp_path, "validation"), *read(tmp_path, "calibration")] == flat[:400]
    loaded = load_tokenizer(str(tmp_path / "checkpoint/a"), "main")
    assert loaded.encode("Year 12") == ours.encode("Year 12").ids
    (tmp_path / "checkpoint/a/tokenizer.json").unlink()
    with pytest.raises(Problem, match=r"tokenizer\.json"):
        load_tokenizer(str(tmp_path / "checkpoint/a"), "main")


TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
CHAT = [{"role": "user", "content": "Yes?"}, {"role": "assistant", "content": "Well, no."}]
STRICT = "{{ raise_exception('only users') }}"


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_chats_are_text_by_the_template_of_the_tokenizer(tmp_path, kind):
    path = tmp_path / f"chats.{kind}"
    rows = [{"messages": CHAT, "id": number} for number in range(200)]
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text(json.dumps(rows))
    files = [asdict(each) for each in folders.listed(tmp_path, path.name.__eq__)]
    dataset = {"path": f"{tmp_path}", "field": "messages"}
    source = Texts(folder=str(tmp_path), files=files, dataset=dataset)
    assert [*source.documents(joined)] == ["Yes?\nWell, no."] * 200
    ours = train_tokenizer([LINE], 300)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=ours, chat_template=TEMPLATE)
    written(tmp_path, tokenizer, source, validation=100, calibration=50)
    ids = ours.encode("<user>Yes?<assistant>Well, no.").ids
    found = [*read(tmp_path, "validation"), *read(tmp_path, "calibration")]
    assert found == (ids * 20)[:150] and 100 % len(ids), "or splits would begin with documents"
    for template, words in ((None, "chat_template"), (STRICT, "only users")):
        (folder := tmp_path / words).mkdir()
        tokenizer.chat_template = template
        with one_line("row 1 of data set ", "fits no chat template", words):
            written(folder, tokenizer, source, validation=100, calibration=50)


@pytest.mark.slow
def test_losses_of_blocks_with_bos_are_those_of_the_harness(tmp_path):
    """A text of one block, under a tokenizer that puts BOS before texts, and a random Llama."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    ours = train_tokenizer([LINE * 9], 270)
    ours.add_special_tokens(["<s>"])
    begin = ours.token_to_id("<s>")
    ours.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", begin)])
    model = create(vocab_size=begin + 1, bos_token_id=begin)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=ours, bos_token="<s>")
    size = len(tokenizer(LINE, add_special_tokens=False)["input_ids"])
    (tmp_path / "a.txt").write_text(f"{LINE}\n{LINE}")
    for bos in (False, True):
        sizes = {"validation": size, "calibration": 1, "bos": bos}
        tokenizer.backend_tokenizer.enable_padding(direction="left", length=9)  # as some are saved
        facts = written(tmp_path, tokenizer, texts(tmp_path, "a.txt"), **sizes)
        assert facts.get(splits.BEGIN) == ([begin] if bos else None)
        corpus = manifest.describe(tmp_path, tmp_path / "manifest.json", facts)
        block = tokens.blocks(corpus, "validation", size + bos)
        assert block.shape == (1, size + bos)
    found = -size * float(models.block_losses(model, block, 1))
    harness = HFLM(pretrained=model, tokenizer=tokenizer, max_length=64, add_bos_token=False)
    asked = Instance("loglikelihood_rolling", {}, (LINE,), 0)
    assert harness.loglikelihood_rolling([asked]) == [pytest.approx(found, rel=1e-5)]
