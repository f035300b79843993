"""A server on the loopback that speaks the part of the hub's protocol that `huggingface_hub` and `datasets` use.

It serves folders as repositories: their description, their tree, and files with ETag and ranges. A name that begins with
`datasets/` is that of a data set. Who sends the `token` may create repositories of models and commit files to them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass
class Hub:
    """Repositories by name, each a folder; `requests` are the paths that were asked for. `branches` are further names of the
    newest commit of any repository.

    `gated` are names whose terms nobody has accepted. Every answer has the `status`, if there is one; bodies of files end
    after `cut` bytes, and hang there until the event `goes_on`, if there is one. New repositories are folders in `root`;
    `public` says of each whether everybody may see it.
    """

    repositories: dict[str, Path] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    status: int | None = None
    cut: int | None = None
    goes_on: threading.Event | None = None
    requests: list[str] = field(default_factory=list)
    root: Path = Path()
    token: str = "hf_secret"
    public: dict[str, bool] = field(default_factory=dict)
    branches: tuple[str, ...] = ("main",)

    def commit(self, name: str) -> str:
        """The commit of a repository: a digest of its files' names, sizes and times."""
        folder = self.repositories[name]
        digest = hashlib.sha1(name.encode())
        for path in self.files(name):
            status = (folder / path).stat()
            digest.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
        return digest.hexdigest()

    def files(self, name: str) -> list[str]:
        """The paths of the files of a repository."""
        folder = self.repositories[name]
        return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@contextmanager
def serving(hub: Hub) -> Iterator[str]:
    """The address of a server with these repositories, while it runs."""

    class Handler(_Handler):
        repositories = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    repositories: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_POST(self) -> None:
        hub, path = self.repositories, urlsplit(self.path).path
        body = self.rfile.read(int(self.headers["Content-Length"]))
        hub.requests.append(f"POST {path}")
        listed = re.fullmatch(r"/api/(datasets/[^/]+/[^/]+)/paths-info/[^/]+", unquote(path))
        if listed and listed[1] in hub.repositories:
            folder, paths = hub.repositories[listed[1]], parse_qs(body.decode())["paths"]
            self._json([entry for path in paths for entry in self._entries(folder, path)], True)
        elif self.headers.get("Authorization") != f"Bearer {hub.token}":
            self._send(401, b"", True)
        elif path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked.get('organization') or 'me'}/{asked['name']}"
            if name in hub.repositories:
                self._send(409, b"", True)
                return
            hub.repositories[name], hub.public[name] = hub.root / name, asked["visibility"] == "public"
            hub.repositories[name].mkdir(parents=True)
            self._json({"url": f"http://{self.headers['Host']}/{name}", "name": name}, True)
        elif path == "/api/validate-yaml":
            self._json({"errors": [], "warnings": []}, True)
        elif path.endswith("/preupload/main"):
            files = [{"path": file["path"], "uploadMode": "regular", "shouldIgnore": False} for file in json.loads(body)["files"]]
            self._json({"files": files}, True)
        elif path.endswith("/commit/main"):
            name = path.removeprefix("/api/models/").removesuffix("/commit/main")
            for line in body.splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    file = hub.repositories[name] / entry["value"]["path"]
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(base64.b64decode(entry["value"]["content"]))
            commit = hub.commit(name)
            self._json({"commitUrl": f"http://{self.headers['Host']}/{name}/commit/{commit}", "commitOid": commit}, True)
        else:
            self._send(404, b"", True)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def _answer(self, *, body: bool) -> None:
        hub, path = self.repositories, unquote(urlsplit(self.path).path)
        hub.requests.append(f"{self.command} {path}")
        name = "((?:datasets/)?[^/]+/[^/]+)"
        api = re.fullmatch(f"/api/(?:models/|(?=datasets/)){name}(?:/(revision|tree)/([^/]+)(?:/(.+))?)?", path)
        file = re.fullmatch(f"/{name}/resolve/([^/]+)/(.+)", path)
        match = api or file
        if match is None:
            self._send(404, b"", body)
            return
        name, revision = match[1], (api[3] if api else match[2]) or "main"
        if hub.status is not None:
            self._send(hub.status, b"", body)
        elif name in hub.gated:
            self._send(403, b"", body, {"X-Error-Code": "GatedRepo", "X-Error-Message": "accept the terms"})
        elif name not in hub.repositories:
            self._send(401, b"", body, {"X-Error-Code": "RepoNotFound"})
        elif revision not in (*hub.branches, hub.commit(name)):
            self._send(404, b"", body, {"X-Error-Code": "RevisionNotFound"})
        elif file and not (hub.repositories[name] / file[3]).is_file():
            self._send(404, b"", body, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": hub.commit(name)})
        elif file:
            self._file(hub.repositories[name] / file[3], hub.commit(name), body)
        elif api is not None and api[2] == "tree":
            self._tree(hub.repositories[name], hub.files(name), api[4] or "", body)
        else:
            entries = [self._entry(hub.repositories[name], path) for path in hub.files(name)]
            siblings = [{"rfilename": entry["path"], "size": entry["size"], "blobId": entry["oid"]} for entry in entries]
            identity = name.removeprefix("datasets/")
            self._json({"id": identity, "sha": hub.commit(name), "private": False, "tags": [], "siblings": siblings}, body)

    def _tree(self, folder: Path, files: list[str], inside: str, body: bool) -> None:
        """The entries of a folder of a repository, with `recursive` those below it, too."""
        if inside and not (folder / inside).is_dir():
            self._send(404, b"", body, {"X-Error-Code": "EntryNotFound"})
            return
        begin = f"{inside}/" if inside else ""
        below = [path.removeprefix(begin) for path in files if path.startswith(begin)]
        if parse_qs(urlsplit(self.path).query).get("recursive") not in (["true"], ["True"]):
            below = list(dict.fromkeys(path.partition("/")[0] for path in below))
        self._json([entry for path in below for entry in self._entries(folder, begin + path)], body)

    @classmethod
    def _entries(cls, folder: Path, path: str) -> list[dict[str, Any]]:
        """What is at a path of a repository: a file, a folder, or nothing."""
        if (folder / path).is_dir():
            return [{"type": "directory", "path": path, "size": 0, "oid": hashlib.sha1(path.encode()).hexdigest()}]
        return [cls._entry(folder, path)] if (folder / path).is_file() else []

    @staticmethod
    def _entry(folder: Path, path: str) -> dict[str, Any]:
        return {"type": "file", "path": path, "size": (folder / path).stat().st_size, "oid": _tag(folder / path)}

    def _json(self, value: Any, body: bool) -> None:
        self._send(200, json.dumps(value).encode(), body, {"Content-Type": "application/json"})

    def _file(self, path: Path, commit: str, body: bool) -> None:
        size, status = path.stat().st_size, 200
        headers = {"ETag": f'"{_tag(path)}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        start, end = (int(asked[1]), min(int(asked[2] or size - 1), size - 1)) if asked else (0, size - 1)
        if asked:
            headers["Content-Range"], status = f"bytes {start}-{end}/{size}", 206
        with path.open("rb") as file:
            file.seek(start)
            content = file.read(end - start + 1)
        self._send(status, content, body, headers, self.repositories.cut)

    def _send(
        self, status: int, content: bytes, body: bool, headers: Mapping[str, str] = MappingProxyType({}), cut: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(content[:cut])
            if cut is not None and self.repositories.goes_on is not None:
                self.wfile.flush()
                self.repositories.goes_on.wait()
        self.close_connection = cut is not None


def _tag(path: Path) -> str:
    """The tag of a file: a digest of its size and times, since hashing gigabytes takes too long."""
    status = path.stat()
    return hashlib.sha1(f"{path} {status.st_size} {status.st_mtime_ns}".encode()).hexdigest()
