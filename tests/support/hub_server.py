"""A server on loopback that speaks the part of the Hugging Face Hub's HTTP API that its client uses here."""

import base64
import hashlib
import json
import re
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_test"
MAX_ENDLESS_CHUNKS = 64  # of a MiB: enough for a test
LARGE = (".safetensors", ".model")  # stored by LFS, as the Hub's .gitattributes says


class HubServer:
    """Repositories in memory: files by path, for each commit."""

    def __init__(self) -> None:
        self.repositories: dict[str, dict[str, dict[str, bytes]]] = {}  # commit -> path -> content
        self.heads: dict[str, str] = {}
        self.private: dict[str, bool] = {}
        self.blobs: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.broken_paths: set[str] = set()  # the server fails on these
        self.states_sizes = True
        self.answers: dict[str, Any] = {}  # by a part of a path: what is sent instead, as JSON
        self.endless_paths: set[str] = set()  # the bodies of these never end
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_request(self) -> None:
                Exchange(hub, self).respond()

            do_GET = do_HEAD = do_POST = do_PUT = handle_request

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def files(self, repository: str) -> dict[str, bytes]:
        """Return the files of the newest commit."""
        return self.repositories[repository][self.heads[repository]]

    def create(self, repository: str, private: bool) -> None:
        self.repositories[repository], self.private[repository] = {}, private
        self.commit(repository, {".gitattributes": b"*.safetensors filter=lfs\n"})

    def commit(self, repository: str, files: dict[str, bytes]) -> str:
        number = f"{repository} {len(self.repositories[repository])}"
        commit = hashlib.sha1(number.encode()).hexdigest()
        self.repositories[repository][commit] = files
        self.heads[repository] = commit
        return commit


class Exchange:
    """One request and its response."""

    def __init__(self, hub: HubServer, handler: BaseHTTPRequestHandler) -> None:
        self.hub, self.handler = hub, handler
        self.path = unquote(urlsplit(handler.path).path)
        self.body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        if handler.headers.get("Transfer-Encoding") == "chunked":
            self.body = self.read_chunks()
        hub.requests.append((handler.command, self.path))

    def read_chunks(self) -> bytes:
        parts = []
        while size := int(self.handler.rfile.readline(), 16):
            parts.append(self.handler.rfile.read(size))
            self.handler.rfile.readline()
        self.handler.rfile.readline()
        return b"".join(parts)

    def respond(self) -> None:
        if any(path in self.path for path in self.hub.broken_paths):
            return self.send(500, {"error": "broken"})
        for path, answer in self.hub.answers.items():
            if path in self.path:
                return self.send(200, answer)
        if any(path in self.path for path in self.hub.endless_paths):
            return self.send_endless_file()
        if match := re.fullmatch(r"/lfs/([0-9a-f]{64})", self.path):
            self.hub.blobs[match[1]] = self.body
            return self.send(200, {})
        if self.handler.command == "POST" and self.handler.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.send(401, {"error": "no token"})
        for pattern, method in ROUTES:
            if match := re.fullmatch(pattern, self.path):
                return method(self, *match.groups())
        return self.send(404, {"error": self.path}, {"X-Error-Code": "RepoNotFound"})

    def send(self, status: int, answer: Any, headers: dict[str, str] | None = None) -> None:
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.handler.send_response(status)
        for name, value in (headers or {}).items():
            self.handler.send_header(name, value)
        self.handler.send_header("Content-Length", str(len(content)))
        self.handler.end_headers()
        if self.handler.command != "HEAD":
            self.handler.wfile.write(content)

    def send_endless_file(self) -> None:
        self.handler.send_response(200)
        headers = {"ETag": '"tag"', "X-Repo-Commit": "0" * 40, "Transfer-Encoding": "chunked"}
        for name, value in headers.items():
            self.handler.send_header(name, value)
        self.handler.end_headers()
        self.handler.close_connection = True
        with suppress(OSError):  # the client has gone
            for _ in range(MAX_ENDLESS_CHUNKS if self.handler.command == "GET" else 0):
                self.handler.wfile.write(b"100000\r\n" + bytes(2**20) + b"\r\n")

    # ---- routes

    def create_repository(self) -> None:
        values = json.loads(self.body)
        name = f"{values['organization']}/{values['name']}"
        if name in self.hub.repositories:
            return self.send(409, {"error": "exists", "url": f"{self.hub.endpoint}/{name}"})
        self.hub.create(name, values.get("visibility") == "private" or values.get("private") is True)
        return self.send(200, {"url": f"{self.hub.endpoint}/{name}"})

    def validate_card(self) -> None:
        self.send(200, {"errors": [], "warnings": []})

    def choose_upload_modes(self, repository: str, revision: str) -> None:
        files = json.loads(self.body)["files"]
        modes = {file["path"]: "lfs" if file["path"].endswith(LARGE) else "regular" for file in files}
        rows = [{"path": path, "uploadMode": mode, "shouldIgnore": False} for path, mode in modes.items()]
        self.send(200, {"files": rows})

    def plan_uploads(self, repository: str) -> None:
        objects = [
            {
                "oid": entry["oid"],
                "size": entry["size"],
                "actions": {"upload": {"href": f"{self.hub.endpoint}/lfs/{entry['oid']}"}},
            }
            for entry in json.loads(self.body)["objects"]
        ]
        self.send(200, {"transfer": "basic", "objects": objects})

    def commit_files(self, repository: str, revision: str) -> None:
        files = dict(self.hub.files(repository))
        for line in self.body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                files[value["path"]] = self.hub.blobs[value["oid"]]
            elif entry["key"] == "deletedFile":
                del files[value["path"]]
        commit = self.hub.commit(repository, files)
        url = f"{self.hub.endpoint}/{repository}/commit/{commit}"
        self.send(200, {"commitUrl": url, "commitOid": commit, "hookOutput": ""})

    def describe_model(self, repository: str, revision: str | None = None) -> None:
        commit = self.find_commit(repository, revision)
        if commit is None:
            code = "RevisionNotFound" if repository in self.hub.repositories else "RepoNotFound"
            return self.send(404, {"error": code}, {"X-Error-Code": code})
        files = self.hub.repositories[repository][commit]
        states_sizes = self.hub.states_sizes
        siblings = [
            {"rfilename": path, **({"size": len(content)} if states_sizes else {})}
            for path, content in files.items()
        ]
        return self.send(200, {"id": repository, "sha": commit, "siblings": siblings})

    def send_file(self, repository: str, revision: str, path: str) -> None:
        commit = self.find_commit(repository, revision)
        content = self.hub.repositories[repository][commit].get(path) if commit else None
        if content is None:
            return self.send(404, {"error": path}, {"X-Error-Code": "EntryNotFound"})
        tag = hashlib.sha256(content).hexdigest()
        return self.send(200, content, {"ETag": f'"{tag}"', "X-Repo-Commit": commit or ""})

    def find_commit(self, repository: str, revision: str | None) -> str | None:
        commits = self.hub.repositories.get(repository, {})
        if revision in (None, "main"):
            return self.hub.heads.get(repository)
        return revision if revision in commits else None


NAME = r"([\w.-]+/[\w.-]+)"
ROUTES: list[tuple[str, Any]] = [
    (r"/api/repos/create", Exchange.create_repository),
    (r"/api/validate-yaml", Exchange.validate_card),
    (rf"/api/models/{NAME}/preupload/([^/]+)", Exchange.choose_upload_modes),
    (rf"/{NAME}\.git/info/lfs/objects/batch", Exchange.plan_uploads),
    (rf"/api/models/{NAME}/commit/([^/]+)", Exchange.commit_files),
    (rf"/api/models/{NAME}/revision/([^/]+)", Exchange.describe_model),
    (rf"/api/models/{NAME}", Exchange.describe_model),
    (rf"/{NAME}/resolve/([^/]+)/(.+)", Exchange.send_file),
]
