"""States of AcceleratorRollouts are kept once each, in a file of each process."""

import json
from pathlib import Path
from typing import Any

from lab.statuses import Corpus, kept


def body(generation: int = 1, version: str = "1", **status: Any) -> dict[str, Any]:
    metadata = {
        "name": "worker",
        "namespace": "team",
        "uid": "u",
        "generation": generation,
        "resourceVersion": version,
    }
    return {"kind": "AcceleratorRollout", "metadata": metadata, "spec": {"paused": False}, "status": status}


def test_each_state_is_kept_once(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path)
    for one in (body(), body(version="2"), body(2), body(2, replicas=1), body(2, replicas=1)):
        corpus.note(one)
    corpus.close()
    assert [(one["metadata"]["generation"], one["status"]) for one in kept(tmp_path)] == [
        (1, {}),
        (2, {}),
        (2, {"replicas": 1}),
    ]


def test_what_another_process_saw_counts_once_and_a_line_cut_short_not_at_all(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path)
    corpus.note(body())
    corpus.close()
    (mine,) = tmp_path.glob("*.jsonl")
    other = mine.read_text() + json.dumps(next(kept(tmp_path)) | {"status": {"replicas": 3}}) + "\n"
    (tmp_path / "other.jsonl").write_text(other + '{"half')
    assert len(list(kept(tmp_path))) == 2


def test_a_state_says_what_tools_judge_by(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path)
    leaving = body()
    leaving["metadata"]["deletionTimestamp"] = "2026-01-31T12:00:00Z"
    del leaving["status"]
    corpus.note(leaving)
    corpus.close()
    (one,) = kept(tmp_path)
    assert one["metadata"]["deletionTimestamp"]
    assert "status" not in one
