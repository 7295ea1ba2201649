"""What the text is told of claims: verdicts, and both sides of every inequality."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ptq_dynamics.claims.verdicts import SEEN, Verdict, relation
from ptq_dynamics.paper.numbers import short, shown

# Before the name of a public model, where its miniature is what a claim is about.
MINIATURE = "miniature of "


def claims(content: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Every claim by its name, with its inequalities as rows of text."""
    return {each["name"]: _claim(each) for each in content["claims"]}


def counted(verdicts: Iterable[str]) -> dict[str, int]:
    """How many there are of each verdict, of those that there can be."""
    found = Counter(verdicts)
    return {str(verdict): found[verdict] for verdict in Verdict}


def keys(verdicts: Mapping[str, int]) -> dict[str, str]:
    """Counts of verdicts, and of all, by keys of one word."""
    named = {verdict.replace(" ", "-"): str(count) for verdict, count in verdicts.items()}
    return named | {"all": str(sum(verdicts.values()))}


def numbers(content: Mapping[str, Any]) -> dict[str, str]:
    """Numbers by key: how many claims and inequalities have which verdict, and both sides of each,
    as `claims.NAME.INDEX.left`, counted from 0."""
    every = [one for claim in content["claims"] for one in claim["inequalities"]]
    found = {
        f"{of}.{key}": count
        for of, judged in (("claims", content["claims"]), ("inequalities", every))
        for key, count in keys(counted(each["verdict"] for each in judged)).items()
    }
    found["verdict.errors"] = f"{SEEN:g}"
    found["inequalities.measured"] = str(sum("effect" in one for one in every))
    found["inequalities.without-error"] = str(
        sum("effect" in one and one["error"] is None for one in every)
    )
    found["inequalities.of-one-seed"] = str(sum(len(one.get("seeds", ())) == 1 for one in every))
    for claim in content["claims"]:
        for index, one in enumerate(claim["inequalities"]):
            place = f"claims.{claim['name']}.{index}"
            found |= {f"{place}.{key}": text for key, text in _texts(one).items()}
    return found


def _claim(claim: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "number": claim["number"],
        "says": claim["says"],
        "verdict": claim["verdict"],
        "about": [each.removeprefix(MINIATURE) for each in claim["about"]],
        "counts": counted(each["verdict"] for each in claim["inequalities"]),
        "inequalities": [
            {
                "says": one["says"],
                "figure": one["figure"],
                "quantizer": one["quantizer"],
                "asked": relation(one),
                "because": one["because"],
                "verdict": one["verdict"],
                "why": one.get("why"),
                "apart": one.get("not_in_the_error", []),
                **_texts(one),
            }
            for one in claim["inequalities"]
        ],
    }


def _texts(one: Mapping[str, Any]) -> dict[str, str]:
    """The numbers of an inequality; without those that were not measured."""
    published = one["published"]
    texts = {} if published is None else {"published": short(published["ratio"])}
    if "effect" not in one:
        return texts
    sides = {side: shown(one[side]["value"], one[side]["stderr"]) for side in ("left", "right")}
    return {
        **texts,
        **sides,
        "ratio": short(one["ratio"]),
        "effect": shown(one["effect"], one["error"]),
        "smallest": short(one["smallest_effect"]),
        "seeds": str(len(one["seeds"])),
    }
