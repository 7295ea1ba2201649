"""A real browser for tests: Debian's chromium without a window, told what to do over a pipe."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from select import select
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--remote-debugging-pipe", "--no-first-run", "--window-size=1280,900"),
)
CODES = {"Enter": 13, "Escape": 27}
# Seconds until an answer counts as lost.
PATIENCE = 60
MISSING = "no browser here: tests/browser.sh installs Debian's chromium, as root"


def program() -> str | None:
    """Path of the browser, where there is one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """A page in a browser; `events` are all that it has told of console and network."""

    def __init__(self, reads: int, writes: int) -> None:
        self._reads, self._writes = reads, writes
        self._waiting, self._sent, self._session = b"", 0, None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one command of the DevTools protocol; its result."""
        self._sent += 1
        message = {"id": self._sent, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._writes, data) :]
        while True:
            answer = self._next()
            if answer.get("id") == self._sent:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._waiting:
            ready, _, _ = select([self._reads], [], [], PATIENCE)
            assert ready, f"the browser says nothing for {PATIENCE} s"
            got = os.read(self._reads, 1 << 20)
            assert got, "the browser has ended"
            self._waiting += got
        first, _, self._waiting = self._waiting.partition(b"\0")
        message = json.loads(first)
        if "method" in message:
            self.events.append(message)
        return message

    def open(self, path: Path) -> None:
        """Open a file and wait until its scripts have run."""
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not any(each["method"] == "Page.loadEventFired" for each in self.events):
            self._next()

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        said = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in said, said["exceptionDetails"]
        return said["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key where the focus is."""
        known = {"key": key, "code": key, "windowsVirtualKeyCode": CODES[key]}
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **known, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **known)

    def troubles(self) -> list[str]:
        """What the console told of errors and warnings, and what was asked of a network."""
        found = list[str]()
        for each in self.events:
            told = each.get("params", {})
            match each["method"]:
                case "Runtime.exceptionThrown":
                    found.append(str(told["exceptionDetails"]))
                case "Runtime.consoleAPICalled" if told["type"] in ("error", "warning", "assert"):
                    found.append(str(told["args"]))
                case "Log.entryAdded" if told["entry"]["level"] in ("error", "warning"):
                    found.append(told["entry"]["text"])
                case "Network.requestWillBeSent":
                    address = told["request"]["url"]
                    if not address.startswith(("file:", "data:", "blob:", "about:")):
                        found.append(address)
        return found


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """A page in a browser whose profile lies in a folder."""
    found = program()
    assert found is not None, MISSING
    (theirs, writes), (reads, answers) = os.pipe(), os.pipe()

    def hand_over() -> None:
        # The browser reads from 3 and writes to 4; first out of the way of these.
        ends = [os.dup2(os.dup(each), place) for each, place in ((theirs, 100), (answers, 101))]
        for end, place in zip(ends, (3, 4), strict=True):
            os.dup2(end, place)

    process = subprocess.Popen(
        [found, *OPTIONS, f"--user-data-dir={folder}"],
        preexec_fn=hand_over,
        pass_fds=(3, 4),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(folder)},
    )
    os.close(theirs)
    os.close(answers)
    try:
        yield Page(reads, writes)
    finally:
        with suppress(OSError):
            os.close(writes)
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        os.close(reads)
