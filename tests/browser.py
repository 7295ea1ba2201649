"""A real browser for tests: Debian's chromium without a window, which runs scripts in a page."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--enable-logging=stderr", "--virtual-time-budget=20000", "--window-size=1280,900"),
)
MISSING = "no browser here: tests/browser.sh installs Debian's chromium, as root"
# It stands at the end of the page, and leaves nothing but its value there.
SCRIPT = """<script>(async () => {
const all = (...of) => [...document.querySelectorAll(...of)];
const wait = () => new Promise((done) => setTimeout(done, 200));
%s
})().then((value) => document.body.replaceChildren(JSON.stringify(value)));</script></body>"""


def program() -> str | None:
    """Path of the browser, where there is one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def run(page: Path, script: str, folder: Path) -> tuple[Any, list[str]]:
    """What a script returns in a page, by `folder`, and what the console says meanwhile, also of
    refused requests."""
    browser, copy = program(), folder / page.name
    assert browser is not None, MISSING
    head, _, tail = page.read_text(encoding="utf-8").rpartition("</body>")
    copy.write_text(head + SCRIPT % script + tail, encoding="utf-8")
    command = [browser, *OPTIONS, f"--user-data-dir={folder}/profile", "--dump-dom", copy.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    said = re.findall(r"^\[.*CONSOLE.*$", done.stderr, re.M)
    value = re.search("<body>(.*)</body>", done.stdout, re.S)
    assert value and value[1][:1] in '{["tfn-0123456789', said or done.stderr[-2000:]
    return json.loads(html.unescape(value[1])), said
