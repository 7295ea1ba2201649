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
from hypothesis import given
from hypothesis import strategies as st
from ptq_dynamics import models
from ptq_dynamics.base.problem import Problem
from ptq_dynamics.corpus import splits, tokens
from ptq_dynamics.corpus.sources.embedded import train_tokenizer
from ptq_dynamics.corpus.sources.own import OwnCorpus, Texts, joined
from ptq_dynamics.engine import manifest
from ptq_dynamics.engine.context import Context, Progress
from ptq_dynamics.hub import folders
from support import one_line
from tokenizers.processors import TemplateProcessing
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

LINE = "Some wörds, and more.\n"
ROWS = "\n".join(json.dumps({"text": LINE}) for _ in range(9))
LATIN, WIDE = LINE.encode("latin-1"), "is UTF-16 or no text"
# Not UTF-8, although arrow takes the bytes for text.
BROKEN = pa.Array.from_buffers(pa.string(), 1, pa.array([LATIN]).buffers())


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
        ("a.parquet", parquet(BROKEN), "a.parquet cannot be read: 'utf-8' codec"),
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


@given(st.lists(st.integers(0, 9), max_size=20), st.tuples(*[st.integers(0, 30)] * 3))
def test_each_split_begins_where_the_last_one_ends(lengths, sizes):
    tokens = np.arange(sum(lengths))
    documents = np.split(tokens, np.cumsum(lengths))
    parts = splits.cut(documents, dict(zip(splits.HELD_OUT, sizes, strict=True)))
    held = [sum(map(len, part)) for part in parts.values()]
    flat = [int(token) for token in chain.from_iterable(chain(*parts.values()))]
    assert flat == tokens[: sum(held)].tolist()
    ends = np.minimum(np.cumsum(sizes), len(tokens))
    assert held == np.diff(ends, prepend=0).tolist()


def test_exactly_enough_text_is_enough_and_a_token_less_is_not(tmp_path):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/a.txt").write_text("\n\n\n".join(["Yes.", "Well, no."] * 200))
    source = texts(tmp_path / "texts", "a.txt")
    tokenizer = train_tokenizer([LINE], 300)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(tmp_path / "checkpoint/a")
    checkpoint = tmp_path / "checkpoint"
    inputs = {"checkpoint": [manifest.describe(checkpoint, checkpoint / "manifest.json", {})]}
    every = [each.ids for each in tokenizer.encode_batch_fast(list(source.documents(joined)))]
    flat, rest = [*chain(*every)], 700

    def write(folder, validation):
        sizes = {"validation": validation, "calibration": rest, "probe": 0}
        corpus = OwnCorpus(source="own", vocabulary=300, text=source, **sizes)
        (out := tmp_path / folder).mkdir()
        found = corpus.write(Context("own", corpus, inputs, out, out, Progress("own")))
        assert found["tokens"] == {"train": 0, **sizes}
        return [np.fromfile(out / f"{name}.bin", "<u2").tolist() for name in splits.SPLITS]

    enough = len(flat) - rest
    assert write("enough", enough) == [[], flat[:enough], flat[enough:], []]
    with pytest.raises(Problem, match=f"has {len(flat):,} tokens, but {len(flat) + 1:,} are req"):
        write("less", enough + 1)


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
    tokenizer = train_tokenizer([LINE], 300)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer)

    def write(folder, template):
        fast.chat_template = template
        fast.save_pretrained(tmp_path / f"{folder}/checkpoint/a")
        place = tmp_path / f"{folder}/checkpoint"
        inputs = {"checkpoint": [manifest.describe(place, place / "manifest.json", {})]}
        sizes = {"validation": 100, "calibration": 50, "probe": 0}
        corpus = OwnCorpus(source="own", vocabulary=300, text=source, **sizes)
        (out := tmp_path / folder / "out").mkdir()
        corpus.write(Context("own", corpus, inputs, out, out, Progress("own")))
        return np.fromfile(out / "validation.bin", "<u2").tolist()

    ids = tokenizer.encode("<user>Yes?<assistant>Well, no.").ids
    assert write("good", TEMPLATE) == (ids * 9)[:100]
    for name, template, words in (
        ("none", None, "chat_template"),
        ("strict", STRICT, "only users"),
    ):
        with one_line("row 1 of data set ", "fits no chat template", words):
            write(name, template)


@pytest.mark.slow
def test_losses_of_blocks_with_bos_are_those_of_the_harness(tmp_path):
    """A text of one block, under a tokenizer that puts BOS before texts, and a random Llama."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    ours = train_tokenizer([LINE * 9], 270)
    ours.add_special_tokens(["<s>"])
    begin = ours.token_to_id("<s>")
    ours.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", begin)])
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
    shape |= {"num_attention_heads": 2, "max_position_embeddings": 64, "bos_token_id": begin}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=begin + 1, **shape)).eval()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=ours, bos_token="<s>")
    tokenizer.save_pretrained(tmp_path / "model/a")
    text = tmp_path / "text"
    text.mkdir()
    (text / "a.txt").write_text(LINE)
    size = len(tokenizer(LINE, add_special_tokens=False)["input_ids"])
    checkpoint = manifest.describe(tmp_path / "model", tmp_path / "model/manifest.json", {})
    sizes = {"validation": size, "calibration": 0, "probe": 0}
    facts, expected = (
        {},
        HFLM(pretrained=model, tokenizer=tokenizer, max_length=64, add_bos_token=False),
    )
    for bos in (False, True):
        kind = OwnCorpus.model_construct(
            source="own", vocabulary=begin + 1, text=texts(text, "a.txt"), bos=bos, **sizes
        )
        out = tmp_path / str(bos)
        out.mkdir()
        inputs = {"checkpoint": [checkpoint]}
        facts[bos] = kind.write(Context("corpus", kind, inputs, out, tmp_path, Progress("corpus")))
        assert facts[bos].get(splits.BEGIN) == ([begin] if bos else None)
        corpus = manifest.describe(out, out / "manifest.json", facts[bos])
        block = tokens.blocks(corpus, "validation", size + bos)
        assert block.shape == (1, size + bos)
        if bos:
            found = -size * float(models.block_losses(model, block, 1))
            (total,) = expected.loglikelihood_rolling(
                [Instance("loglikelihood_rolling", {}, (LINE,), 0)]
            )
            assert found == pytest.approx(total, rel=1e-5)
