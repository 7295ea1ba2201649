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

COMMIT = "0123456789abcdef" * 2 + "01234567"
# Suffixes of what lies in large file storage, which knows files by their sha256.
LARGE = {".safetensors", ".bin", ".parquet", ".gz"}


@dataclass
class Hub:
    """Repositories, as folders below `root`: datasets/OWNER/NAME or OWNER/NAME, all of them at the
    commit `commit`, as are `branches`, and at no other. `dropped` has the requests of a file,
    counted from one, whose connection breaks half way; one in `held` answers only after `release`,
    and one in `missing` with an error. Repositories in `gated` are closed. A hub that is `sizeless`
    lists neither sizes nor digests."""

    root: Path
    commit: str = COMMIT
    url: str = ""
    branches: set[str] = field(default_factory=set)
    dropped: dict[str, set[int]] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    gated: set[str] = field(default_factory=set)
    sizeless: bool = False
    asked: Counter[str] = field(default_factory=Counter)
    release: threading.Event = field(default_factory=threading.Event)


@contextmanager
def serve(root: Path) -> Iterator[Hub]:
    """A hub that serves while the block runs."""
    hub = Hub(root)
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield hub
    finally:
        hub.release.set()
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self) -> None:
        # A revision may have a slash of its own.
        parts = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
        length = int(self.headers.get("Content-Length", 0))
        sent = json.loads(self.rfile.read(length)) if self.command == "POST" else {}
        if parts[0] == "api":
            self._api(parts[1:], sent)
            return
        depth = 3 if parts[0] == "datasets" else 2
        folder, rest = self.hub.root.joinpath(*parts[:depth]), parts[depth:]
        name = "/".join(rest[2:])
        if self._refuses("/".join(parts[:depth]), folder, rest[1]):
            return
        if name in self.hub.missing or not (folder / name).is_file():
            self._send(404, {}, {"X-Error-Code": "EntryNotFound"})
        else:
            self._file(folder / name, name)

    def _api(self, parts: list[str], sent: dict[str, list[str]]) -> None:
        kind, name, rest = parts[0], "/".join(parts[1:3]), parts[3:]
        folder = self.hub.root / ("datasets" if kind == "datasets" else "") / name
        if self._refuses(name, folder, *rest[1:2]):
            return
        if rest[:1] == ["refs"]:
            branches = [{"name": each, "ref": f"refs/heads/{each}"} for each in self.hub.branches]
            about = [{**each, "targetCommit": self.hub.commit} for each in branches]
            self._send(200, {"branches": about, "converts": [], "tags": []})
        elif rest[:1] in (["tree"], ["paths-info"]):
            asked = (folder / path for path in sent.get("paths", ()))
            paths = sorted(folder.rglob("*")) if rest[0] == "tree" else filter(Path.exists, asked)
            self._send(200, [_entry(path, folder) for path in paths])
        else:
            full = "blobs" in urlsplit(self.path).query and not self.hub.sizeless
            siblings = [_sibling(path, folder, full) for path in folder.rglob("*.*")]
            self._send(200, {"id": name, "sha": self.hub.commit, "siblings": siblings})

    def _refuses(self, name: str, folder: Path, revision: str | None = None) -> bool:
        """Whether there is nothing to be had of a repository, which it then says."""
        if name in self.hub.gated:
            self._send(401, {}, {"X-Error-Code": "GatedRepo"})
        elif not folder.is_dir():
            self._send(404, {}, {"X-Error-Code": "RepoNotFound"})
        elif revision not in {None, self.hub.commit, *self.hub.branches}:
            self._send(404, {}, {"X-Error-Code": "RevisionNotFound"})
        else:
            return False
        return True

    def _file(self, path: Path, name: str) -> None:
        if self.command == "GET":
            self.hub.asked[name] += 1
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
        if self.command == "GET" and name in self.hub.held:
            self.hub.release.wait()
        half = self.command == "GET" and self.hub.asked[name] in self.hub.dropped.get(name, ())
        self._send(206 if asked else 200, body, about, half=half)

    do_HEAD = do_GET = do_POST = _answer

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


def _entry(path: Path, folder: Path) -> dict[str, object]:
    name, digest = path.relative_to(folder).as_posix(), hashlib.sha1(path.name.encode()).hexdigest()
    kind = "directory" if path.is_dir() else "file"
    size = 0 if path.is_dir() else path.stat().st_size
    return {"type": kind, "path": name, "size": size, "oid": digest}


def _sibling(path: Path, folder: Path, full: bool) -> dict[str, object]:
    found: dict[str, object] = {"rfilename": path.relative_to(folder).as_posix()}
    if not full:
        return found
    content = path.read_bytes()
    digest, size = hashlib.sha256(content).hexdigest(), len(content)
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize {size}\n"
    inside = pointer.encode() if path.suffix in LARGE else content
    blob = hashlib.sha1(b"blob %d\0" % len(inside) + inside).hexdigest()
    found |= {"size": size, "blobId": blob}
    if path.suffix in LARGE:
        found["lfs"] = {"sha256": digest, "size": size, "pointerSize": len(pointer)}
    return found
