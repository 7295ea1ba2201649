"""The frame of the page: its head, its landmarks, and its scripts and styles inline."""

from collections.abc import Mapping, Sequence
from html import escape

from ptq_dynamics.report.assets import SCRIPTS, STYLE

# The page may load nothing from anywhere.
POLICY = (
    "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)
SCHEMES = {"auto": "As the system", "light": "Light", "dark": "Dark"}


def framed(
    title: str,
    made: str,
    sections: Mapping[str, tuple[str, str]],
    contents: Mapping[str, Sequence[tuple[str, str]]],
    files: Mapping[str, str],
    held: str,
) -> str:
    """The page. `sections` are heads and HTML by their ids; `contents` are ids and texts of links
    that stand below a section in the list of contents; `files` are styles and scripts by name;
    `made` and `held` are HTML."""
    body = "\n".join(
        f'<section id="{name}" aria-labelledby="{name}-head"><h2 id="{name}-head">{escape(head)}'
        f"</h2>\n{text}</section>"
        for name, (head, text) in sections.items()
    )
    scripts = "\n".join(files[name] for name in SCRIPTS)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>
{files[STYLE]}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the figures</a>
<header>
<h1>{escape(title)}</h1>
{made}
<noscript><p>Without scripts there are pictures, captions, claims and tables here, and no values,
training curves or provenance.</p></noscript>
<p class="scheme" role="group" aria-label="Colours">{_schemes()}</p>
</header>
<div class="columns">
<nav aria-label="Contents"><details open><summary>Contents</summary>
{_contents(sections, contents)}
</details></nav>
<main id="main" tabindex="-1">
{body}
</main>
</div>
<dialog id="viewer" aria-label="Enlarged figure"></dialog>
<p id="said" class="unseen" role="status" aria-live="polite"></p>
{held}
<script>
"use strict";
{scripts}</script>
</body>
</html>
"""


def _schemes() -> str:
    return "".join(
        f'<button type="button" data-scheme="{name}" aria-pressed="{str(name == "auto").lower()}">'
        f"{text}</button>"
        for name, text in SCHEMES.items()
    )


def _contents(
    sections: Mapping[str, tuple[str, str]], contents: Mapping[str, Sequence[tuple[str, str]]]
) -> str:
    lines = list[str]()
    for name, (head, _) in sections.items():
        below = "".join(
            f'<li><a href="#{escape(each)}">{escape(text)}</a></li>'
            for each, text in contents.get(name, ())
        )
        within = f"<ul>{below}</ul>" if below else ""
        lines.append(f'<li><a href="#{name}">{escape(head)}</a>{within}</li>')
    return f"<ul>{''.join(lines)}</ul>"
