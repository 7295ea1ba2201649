"""A Hugging Face hub on this machine: repositories are folders, and connections can be broken."""

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit


@dataclass
class Hub:
    """Repositories, as folders below `root`: datasets/OWNER/NAME or OWNER/NAME, all of them at the
    commit `commit` and at no other. `dropped` has the requests of a file, counted from one, whose
    connection breaks half way; a file in `held` answers only after `release`, one in `missing`
    with an error."""

    root: Path
    commit: str
    url: str = ""
    dropped: dict[str, set[int]] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    asked: Counter[str] = field(default_factory=Counter)
    release: threading.Event = field(default_factory=threading.Event)


@contextmanager
def serve(root: Path, commit: str) -> Iterator[Hub]:
    """A hub that serves while the block runs."""
    hub = Hub(root, commit)
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.release.set()
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self) -> None:
        parts = unquote(urlsplit(self.path).path).strip("/").split("/")
        sent = json.loads(self._body()) if self.command == "POST" else {}
        if parts[0] == "api":
            self._api(parts[1:], sent)
            return
        depth = 3 if parts[0] == "datasets" else 2
        folder, rest = self.hub.root.joinpath(*parts[:depth]), parts[depth:]
        name = "/".join(rest[2:])
        if rest[:2] != ["resolve", self.hub.commit]:
            self._send(404, {"error": "no such revision"}, {"X-Error-Code": "RevisionNotFound"})
        elif name in self.hub.missing or not (folder / name).is_file():
            self._send(404, {"error": "no such file"}, {"X-Error-Code": "EntryNotFound"})
        else:
            self._file(folder / name, name)

    def _api(self, parts: list[str], sent: dict[str, list[str]]) -> None:
        kind, name, rest = parts[0], "/".join(parts[1:3]), parts[3:]
        folder = self.hub.root / ("datasets" if kind == "datasets" else "") / name
        if not folder.is_dir():
            self._send(404, {"error": "no such repository"}, {"X-Error-Code": "RepoNotFound"})
        elif rest[1:2] and rest[1] != self.hub.commit:
            self._send(404, {"error": "no such revision"}, {"X-Error-Code": "RevisionNotFound"})
        elif rest[:1] == ["tree"]:
            self._send(200, [_entry(path, folder) for path in sorted(folder.rglob("*"))])
        elif rest[:1] == ["paths-info"]:
            paths = [folder / path for path in sent["paths"]]
            self._send(200, [_entry(path, folder) for path in paths if path.exists()])
        else:
            siblings = [{"rfilename": _entry(path, folder)["path"]} for path in folder.rglob("*.*")]
            self._send(200, {"id": name, "sha": self.hub.commit, "siblings": siblings})

    def _file(self, path: Path, name: str) -> None:
        content = path.read_bytes()
        first, last = 0, len(content)
        asked = self.headers.get("Range")
        if asked:
            start, _, end = asked.removeprefix("bytes=").partition("-")
            first, last = int(start), min(int(end or last - 1) + 1, last)
        about = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "Accept-Ranges": "bytes"}
        about["X-Repo-Commit"] = self.hub.commit
        if asked:
            about["Content-Range"] = f"bytes {first}-{last - 1}/{len(content)}"
        body = content[first:last]
        if self.command == "GET":
            self.hub.asked[name] += 1
            if name in self.hub.held:
                self.hub.release.wait()
        half = self.command == "GET" and self.hub.asked[name] in self.hub.dropped.get(name, ())
        self._send(206 if asked else 200, body, about, half=half)

    def _send(
        self, status: int, body: object, about: dict[str, str] | None = None, *, half: bool = False
    ) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for key, value in {**(about or {}), "Content-Length": str(len(content))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[: len(content) // 2] if half else content)
        self.close_connection = self.close_connection or half

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))


def _entry(path: Path, folder: Path) -> dict[str, object]:
    name, digest = path.relative_to(folder).as_posix(), hashlib.sha1(path.name.encode()).hexdigest()
    kind = "directory" if path.is_dir() else "file"
    size = 0 if path.is_dir() else path.stat().st_size
    return {"type": kind, "path": name, "size": size, "oid": digest}
