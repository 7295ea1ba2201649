"""What the page says of the paper's claims, of where its results come from, and of their cost."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from ptq_dynamics.claims.formats import Cell, Number, Table
from ptq_dynamics.claims.verdicts import Verdict, relation
from ptq_dynamics.provenance.archive import Result
from ptq_dynamics.report.markup import paragraph, table

# Beside its word, so that no verdict is told by colour alone.
SIGNS = {
    Verdict.REPRODUCED: "✓",
    Verdict.NOT_REPRODUCED: "✗",
    Verdict.INCONCLUSIVE: "≈",
    Verdict.NOT_MEASURED: "–",
}
HEADS = (
    "Inequality",
    "Asked",
    "Verdict",
    "Figure",
    "Quantizer",
    "Seeds",
    "Published: left, right",
    "Left",
    "Right",
    "Effect",
    "Smallest effect seen",
    "Why, or not in the error",
)


def claims(judged: Mapping[str, Any]) -> str:
    """Every claim with its verdict, and a table of its inequalities with all their numbers."""
    found = judged["claims"]
    counts = Counter(claim["verdict"] for claim in found)
    summary = ", ".join(f"{counts[each]} {each}" for each in Verdict if counts[each])
    parts = [paragraph(f"{len(found)} claims: {summary}.")]
    parts.append(
        '<p class="filter" role="group" aria-label="Claims to show">'
        + "".join(
            f'<button type="button" data-verdict="{each}" aria-pressed="true">{SIGNS[each]} {each} '
            f"({counts[each]})</button>"
            for each in Verdict
            if counts[each]
        )
        + "</p>"
    )
    return "\n".join([*parts, *map(_claim, found)])


def _claim(claim: Mapping[str, Any]) -> str:
    verdict = Verdict(claim["verdict"])
    number = "" if claim["number"] is None else f'<span class="no">{claim["number"]}</span> '
    about = f" ({', '.join(claim['about'])})" if claim["about"] else ""
    counts = ", ".join(f"{count} {each}" for each, count in claim["counts"].items())
    return (
        f'<details class="claim" id="claim-{escape(claim["name"])}" data-verdict="{verdict}">'
        f'<summary><span class="verdict">{SIGNS[verdict]} {verdict}</span> '
        f"<span>{number}{escape(claim['says'])}{escape(about)}</span></summary>"
        f"{paragraph(f'Inequalities: {counts}.')}{_inequalities(claim)}</details>"
    )


def _inequalities(claim: Mapping[str, Any]) -> str:
    rows = [_inequality(each) for each in claim["inequalities"]]
    return table(Table(f"Inequalities of {claim['name']}", HEADS, rows))


def _inequality(one: Mapping[str, Any]) -> list[Cell]:
    known, smallest = "effect" in one, one.get("smallest_effect")
    pair = one["published"]
    return [
        one["says"],
        relation(one) + (f" ({one['because']})" if one["because"] else ""),
        f"{SIGNS[Verdict(one['verdict'])]} {one['verdict']}",
        one["figure"],
        one["quantizer"] or "",
        len(one["seeds"]) if known else None,
        "" if pair is None else f"{pair['left']:g}, {pair['right']:g}",
        Number(one["left"]["value"], one["left"]["stderr"] or None) if known else None,
        Number(one["right"]["value"], one["right"]["stderr"] or None) if known else None,
        Number(one["effect"], one["error"]) if known else None,
        None if smallest is None else Number(smallest),
        ", ".join([*([one["why"]] if "why" in one else []), *one.get("not_in_the_error", [])]),
    ]


def made(results: Sequence[Result], missing: Iterable[str]) -> str:
    """A paragraph on the commits, machines and times of the results that the page shows."""
    commits, machines = dict[str, None](), dict[str, None]()
    for result in results:
        git, machine = result.record.git, result.record.machine
        changed = " with changes" if git and git.dirty else ""
        commits[f"{git.commit[:10]}{changed}" if git else "no commit"] = None
        machines[result.record.device.name or machine.processor] = None
    started = [result.record.started for result in results]
    lost = len(list(missing))
    words = [f"{len(results):,} results, made by code of {', '.join(commits)}"]
    words.append(f"on {', '.join(machines)}")
    days = sorted({each[:10] for each in started})
    words += [" to ".join(dict.fromkeys([days[0], days[-1]]))] if days else []
    words += [f"; of {lost} more there is no record here"] if lost else []
    return paragraph(f"{' '.join(words)}.")
