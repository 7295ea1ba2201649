"""A corpus from public data sets with a public tokenizer (section 4): what scale paper uses.

Every split names a data set and how many of its tokens are taken, from its first document on or
after some; validation and probe may so come from one data set.
"""

from collections.abc import Mapping
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ptq_dynamics.base.problem import Problem
from ptq_dynamics.corpus import splits
from ptq_dynamics.corpus.documents import stretches
from ptq_dynamics.corpus.encoding import Encoding, encode
from ptq_dynamics.corpus.settings import SPLITS, DatasetsSettings
from ptq_dynamics.engine.context import Context

RESUMABLE = True


def run(context: Context[DatasetsSettings]) -> Mapping[str, Any]:
    """Write tokenizer/ and one token file a split; facts: sizes, dtype and digests."""
    settings = context.settings
    tokenizer = load_tokenizer(settings)
    folder = context.out / "tokenizer"
    tokenizer.save_pretrained(folder)
    dtype = splits.dtype(settings.vocabulary)
    counts: dict[str, int] = {}
    for name in SPLITS:
        wanted = settings.sizes[name]
        context.progress.say(f"{name}: {wanted:,} tokens")
        text = stretches(settings.sources[name])
        if name == "train":
            encoding = Encoding(folder / "tokenizer.json", tokenizer.eos_token_id, dtype)
            file = context.out / splits.file_name(name)
            progress, scratch = context.progress, context.scratch / name
            counts[name] = encode(text, encoding, wanted, file, scratch, progress)
            splits.require(name, counts[name], wanted)
        else:
            # Little, and without special tokens (section 2).
            documents = Encoding(folder / "tokenizer.json", None, dtype).documents(text)
            counts[name] = splits.write(context.out, name, documents, wanted, whole=False)
    return {"tokens": counts, splits.DTYPE: dtype.name, "digest": splits.digest(context.out)}


def _loaded(name: str, revision: str | None) -> PreTrainedTokenizerBase:
    try:
        found: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            name, revision=revision, trust_remote_code=False
        )
    except ValueError as error:
        # One that names code of its own is whole in tokenizer.json all the same.
        try:
            return PreTrainedTokenizerFast.from_pretrained(name, revision=revision or "main")
        except Exception:
            raise error from None
    return found


def load_tokenizer(settings: DatasetsSettings) -> PreTrainedTokenizerBase:
    """The tokenizer of a corpus; `Problem` when it cannot be had or does not fit."""
    name = settings.tokenizer
    if settings.tokenizer_revision is None and not name.startswith(("/", "./", "../")):
        raise Problem(f"tokenizer {name!r} has no commit in the lock; run ptq-dynamics lock")
    try:
        tokenizer = _loaded(name, settings.tokenizer_revision)
    # Besides its own errors, whatever files that are no tokenizer lead to.
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise Problem(
            f"tokenizer {name!r} cannot be loaded: {reason}; fetch it where there is a network, or "
            "change the scale"
        ) from error
    # Not its length: identifiers may have holes.
    needed = max(tokenizer.get_vocab().values()) + 1
    if needed > settings.vocabulary:
        raise Problem(
            f"vocabulary is {settings.vocabulary}, fewer than the {needed} tokens of {name}"
        )
    if not tokenizer.is_fast or tokenizer.eos_token_id is None:
        raise Problem(f"tokenizer {name!r} has no tokenizer.json, or no end-of-document token")
    # Where it came from would be saved with it.
    for key in ("is_local", "local_files_only"):
        tokenizer.init_kwargs.pop(key, None)
    return tokenizer
