"""A small API server on a port of its own, for tests of commands: lists, objects, merge patches, watches and refusals.

It knows paths and no rules. The real one is asked in tests/cluster.
"""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

OURS = "/apis/accelerator-rollout.dev/v1alpha1"
CORE = "/api/v1"
APPS = "/apis/apps/v1"
DEVICES = "/apis/resource.k8s.io/v1"
POLICY = "/apis/policy/v1"
KINDS = {
    OURS: ("acceleratorrollouts",),
    CORE: ("pods", "nodes", "events", "serviceaccounts"),
    APPS: ("deployments", "statefulsets", "daemonsets", "replicasets", "controllerrevisions"),
    DEVICES: ("resourceclaims", "resourceslices"),
    POLICY: ("poddisruptionbudgets",),
    "/apis/events.k8s.io/v1": ("events",),
    "/apis/admissionregistration.k8s.io/v1": ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings"),
    "/apis/authorization.k8s.io/v1": ("selfsubjectaccessreviews", "subjectaccessreviews"),
}
GLOBAL = {"nodes", "resourceslices", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings"}


@dataclass
class Server:
    """What the API server has and does. `refuse` maps a path to a status code and a message."""

    url: str = ""
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)  # by path
    refuse: dict[str, tuple[int, str]] = field(default_factory=dict)
    served: dict[str, tuple[str, ...]] = field(default_factory=lambda: dict(KINDS))
    calls: list[tuple[str, str, Any]] = field(default_factory=list)
    version: tuple[str, str] = ("1", "37")
    changed: threading.Condition = field(default_factory=threading.Condition)
    on_patch: list[Any] = field(default_factory=list)  # each is called with the object after a patch
    on_watch: list[Any] = field(default_factory=list)  # one is taken and called when a watch begins
    gone: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)  # when, path, as it was
    number: int = 1000

    def put(self, root: str, plural: str, raw: dict[str, Any]) -> str:
        """Have this object; return its path."""
        with self.changed:
            meta = raw["metadata"]
            self.number += 1
            meta["resourceVersion"] = str(self.number)
            space = "" if plural in GLOBAL else f"/namespaces/{meta['namespace']}"
            path = f"{root}{space}/{plural}/{meta['name']}"
            self.objects[path] = raw
            self.changed.notify_all()
            return path

    def drop(self, path: str) -> None:
        """Have it no more."""
        with self.changed:
            self.number += 1
            self.gone.append((self.number, path, self.objects.pop(path)))
            self.changed.notify_all()

    def written(self) -> list[Any]:
        """The bodies of all patches."""
        return [body for method, _, body in self.calls if method == "PATCH"]

    def kubeconfig(self, folder: Path, namespace: str = "team") -> Path:
        """Write a kubeconfig that leads here."""
        path = folder / "kubeconfig"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": {"token": "secret"}}],
            "contexts": [
                {"name": "lab", "context": {"cluster": "c", "user": "u", "namespace": namespace}},
                {"name": "other", "context": {"cluster": "c", "user": "u", "namespace": "elsewhere"}},
            ],
            "current-context": "lab",
        }
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        return path

    def collection(self, path: str) -> list[dict[str, Any]] | None:
        """The objects under a collection's path; None if it is none that is served."""
        root, plural = _collection(path)
        if plural not in self.served.get(root, ()):
            return None
        space = path.removeprefix(root).split("/")[2] if "/namespaces/" in path else ""
        prefix = f"{root}/namespaces/{space}/{plural}/" if space else f"{root}/"
        return [
            o for p, o in sorted(self.objects.items()) if p.startswith(prefix) and p.split("/")[-2] == plural
        ]


def _holds(collection: str, path: str) -> bool:
    root, plural = _collection(collection)
    space = collection.removeprefix(root).removesuffix(plural)
    return path.startswith(root + space) and path.split("/")[-2] == plural


def _collection(path: str) -> tuple[str, str]:
    parts = path.strip("/").split("/")
    size = 3 if parts[0] == "apis" else 2
    return "/" + "/".join(parts[:size]), parts[-1]


class _Handler(BaseHTTPRequestHandler):
    server_state: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        state, query = self._enter(None)
        path = urlsplit(self.path).path
        if "patch" in self.headers.get("Content-Type", ""):
            self._answer(415, {"message": "Unsupported Media Type"})
            return
        if self._refused(path):
            return
        if "watch" in query:
            self._watch(state, path, query)
        elif path == "/version":
            self._answer(
                200,
                {
                    "major": state.version[0],
                    "minor": state.version[1],
                    "gitVersion": f"v{'.'.join(state.version)}.0",
                },
            )
        elif path == "/apis":
            names = [
                root.removeprefix("/apis/").split("/") for root in state.served if root.startswith("/apis/")
            ]
            self._answer(200, {"groups": [{"name": g, "versions": [{"version": v}]} for g, v in names]})
        elif path in state.served:
            self._answer(200, {"resources": [{"name": name} for name in state.served[path]]})
        elif path in state.objects:
            self._answer(200, state.objects[path])
        elif (found := state.collection(path)) is not None:
            chosen = [o for o in found if _selected(o, query)]
            self._answer(200, {"metadata": {"resourceVersion": str(state.number)}, "items": chosen})
        else:
            name = path.rpartition("/")[2]
            known = state.collection(path.rpartition("/")[0]) is not None
            said = f'"{name}" not found' if known else "the server could not find the requested resource"
            self._answer(404, {"message": said})

    def do_PATCH(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        state, _ = self._enter(body)
        path = urlsplit(self.path).path
        if self._refused(path):
            return
        if path not in state.objects:
            self._answer(404, {"message": "not found"})
            return
        meta = state.objects[path]["metadata"]
        asked = body.get("metadata", {}) if isinstance(body, dict) else {}
        if asked.get("resourceVersion", meta["resourceVersion"]) != meta["resourceVersion"]:
            self._answer(409, {"message": "the object has been modified"})
            return
        if asked.get("uid", meta["uid"]) != meta["uid"]:
            self._answer(422, {"message": "metadata.uid: Invalid value"})
            return
        with state.changed:
            state.number += 1
            changed = _merged(state.objects[path], body) if isinstance(body, dict) else state.objects[path]
            changed["metadata"]["resourceVersion"] = str(state.number)
            state.objects[path] = changed
            for react in state.on_patch:
                react(changed)
            state.changed.notify_all()
        self._answer(200, changed)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._enter(body)
        path = urlsplit(self.path).path
        if self._refused(path):
            return
        self._answer(201, body | {"status": {"allowed": True}})

    def _enter(self, body: Any) -> tuple[Server, Mapping[str, list[str]]]:
        self.server_state.calls.append((self.command, urlsplit(self.path).path, body))
        return self.server_state, parse_qs(urlsplit(self.path).query)

    def _refused(self, path: str) -> bool:
        found = self.server_state.refuse.get(path)
        if found is None:
            return False
        self._answer(found[0], {"message": found[1]})
        return True

    def _watch(self, state: Server, path: str, query: Mapping[str, list[str]]) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        seen = int(query.get("resourceVersion", ["0"])[0])
        seconds = float(query["timeoutSeconds"][0])
        with state.changed:
            if state.on_watch:
                state.on_watch.pop(0)()
            while True:
                found = [o for o in state.collection(path) or () if _selected(o, query)]
                events = [("MODIFIED", o) for o in found if int(o["metadata"]["resourceVersion"]) > seen]
                events += [
                    ("DELETED", o)
                    for when, at, o in state.gone
                    if when > seen and _holds(path, at) and _selected(o, query)
                ]
                seen = max(seen, state.number)
                for kind, raw in events:
                    line = json.dumps({"type": kind, "object": raw}).encode() + b"\n"
                    self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
                self.wfile.flush()
                if not state.changed.wait(seconds):
                    break
        self.wfile.write(b"0\r\n\r\n")

    def _answer(self, code: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _selected(raw: Mapping[str, Any], query: Mapping[str, list[str]]) -> bool:
    selector = query.get("fieldSelector", [""])[0]
    if selector.startswith("metadata.name="):
        return bool(raw["metadata"]["name"] == selector.removeprefix("metadata.name="))
    labels = raw["metadata"].get("labels") or {}
    wanted = [one.split("=") for one in query.get("labelSelector", [""])[0].split(",") if "=" in one]
    return all(labels.get(key) == value for key, value in wanted)


def _merged(before: Any, patch: Any) -> Any:
    if not isinstance(patch, dict) or not isinstance(before, dict):
        return patch
    after = {**before}
    for key, value in patch.items():
        if value is None:
            after.pop(key, None)
        else:
            after[key] = _merged(before.get(key), value)
    return after


@contextmanager
def serving() -> Iterator[Server]:
    """Serve until the end."""
    state = Server()
    handler = type("Handler", (_Handler,), {"server_state": state})
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    http.daemon_threads = True
    state.url = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
