"""Every distinct state of AcceleratorRollouts that cluster tests saw, for suites that ask what tools make of them.

STATUSES_TO names a folder; without it nothing is kept. Each process has a file of its own there, so tests may run in parallel.
"""

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TextIO

STATUSES_TO: Final = "STATUSES_TO"
_TOLD: Final = (
    "name",
    "namespace",
    "uid",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
)  # of metadata

Json = dict[str, Any]


def folder() -> Path | None:
    """Where states are kept, if they are."""
    told = os.environ.get(STATUSES_TO)
    return Path(told) if told else None


def stated(body: Mapping[str, Any]) -> Json:
    """Return of an object what tools judge it by."""
    metadata = body["metadata"]
    kept: Json = {
        "apiVersion": body.get("apiVersion", "accelerator-rollout.dev/v1alpha1"),
        "kind": body.get("kind", "AcceleratorRollout"),
        "metadata": {key: metadata[key] for key in _TOLD if key in metadata},
        "spec": body.get("spec") or {},
    }
    return kept | ({"status": body["status"]} if "status" in body else {})


def essence(state: Mapping[str, Any]) -> str:
    """Return what two states have in common that are the same: generation, whether it leaves, spec and status."""
    metadata = state["metadata"]
    told = (
        metadata["uid"],
        metadata["generation"],
        "deletionTimestamp" in metadata,
        state["spec"],
        state.get("status"),
    )
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


class Corpus:
    """Keeps states in a file of this process."""

    def __init__(self, to: Path) -> None:
        to.mkdir(parents=True, exist_ok=True)
        self._path = to / f"{os.getpid()}.jsonl"
        self._file: TextIO | None = None
        self._seen: set[str] = set()

    def note(self, body: Mapping[str, Any]) -> None:
        """Keep the state unless it was seen before."""
        state = stated(body)
        key = essence(state)
        if key in self._seen:
            return
        self._seen.add(key)
        if self._file is None:
            self._file = self._path.open("a", encoding="utf-8", buffering=1)
        self._file.write(json.dumps(state, separators=(",", ":")) + "\n")

    def close(self) -> None:
        """End the file; a later note opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None


def kept(where: Path) -> Iterator[Json]:
    """Yield the distinct states of all processes; a last line cut short is left out."""
    seen: set[str] = set()
    for path in sorted(where.glob("*.jsonl")):
        text = path.read_text(encoding="utf-8")
        for line in text.split("\n")[: text.count("\n")]:
            state: Json = json.loads(line)
            key = essence(state)
            if key not in seen:
                seen.add(key)
                yield state


def slight(state: Mapping[str, Any]) -> Json:
    """Return of a state what tools go by, without words for people."""
    status, spec = state.get("status") or {}, state["spec"]
    told: Json = (
        {"observedGeneration": status["observedGeneration"]} if "observedGeneration" in status else {}
    )
    told["conditions"] = [condition | {"message": ""} for condition in status.get("conditions", [])]
    kept_of_spec = {key: spec[key] for key in ("workloadRef", "paused") if key in spec}
    return {**state, "spec": kept_of_spec, "status": told}


def main() -> int:
    """Print one state of each shape, of the folders named: for tests/cluster/states.jsonl."""
    from lab.agreement import shape  # what a shape is, is its business

    shapes: dict[str, Json] = {}
    for where in sys.argv[1:]:
        for state in kept(Path(where)):
            shapes.setdefault(shape(state), state)
    for _, state in sorted(shapes.items()):
        sys.stdout.write(json.dumps(slight(state), separators=(",", ":")) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
