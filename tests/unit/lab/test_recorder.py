"""Questions to a timeline: order by resourceVersion, and failures that show what was seen."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from lab.client import Api, EventType
from lab.kubeconfig import Connection
from lab.recorder import Recorded, Recorder, Source, Timeline, summary, trimmed
from lab.resources import ACCELERATOR_ROLLOUTS, PODS


def change(
    sequence: int,
    version: int,
    *,
    kind: str = "Pod",
    name: str = "llm-0",
    event: EventType = EventType.MODIFIED,
    body: dict[str, Any] | None = None,
) -> Recorded:
    return Recorded(
        sequence=sequence,
        type=event,
        source=Source.WATCH,
        kind=kind,
        namespace="models",
        name=name,
        uid=f"uid-{name}",
        version=version,
        monotonic=float(sequence),
        wall=datetime(2026, 1, 1, tzinfo=UTC),
        object=body or {"metadata": {"name": name}, "spec": {}},
    )


def test_events_come_in_the_order_of_their_versions_whatever_order_they_arrived_in() -> None:
    claim_later = change(0, 12, kind="ResourceClaim", name="acc")
    pod_earlier = change(1, 11)
    timeline = Timeline([claim_later, pod_earlier])

    assert timeline.events() == [pod_earlier, claim_later]
    timeline.order(pod_earlier, claim_later)


def test_a_wrong_order_fails_with_both_steps_and_what_lay_between() -> None:
    gone = change(0, 10, event=EventType.DELETED)
    between = change(1, 11, kind="ResourceClaim", name="acc")
    opened = change(2, 12, name="llm-1")
    outside = change(3, 13, name="llm-2")
    timeline = Timeline([gone, between, opened, outside])

    with pytest.raises(AssertionError, match="wrong order") as caught:
        timeline.order(opened, gone)
    message = str(caught.value)
    assert "ResourceClaim models/acc" in message
    assert "llm-2" not in message
    assert message.count("→") == 2


def test_first_finds_the_earliest_match_or_says_what_never_came() -> None:
    timeline = Timeline([change(0, 12), change(1, 11), change(2, 13, event=EventType.DELETED)])

    assert timeline.first(name="llm-0").version == 11
    assert timeline.first(type=EventType.DELETED).version == 13
    with pytest.raises(AssertionError, match=r"never observed: the claim is free\ntimeline:"):
        timeline.first("the claim is free", kind="ResourceClaim")


def test_statuses_are_listed_without_repetition_and_without_the_deletion() -> None:
    def seen(sequence: int, status: dict[str, Any], event: EventType = EventType.MODIFIED) -> Recorded:
        body = {"metadata": {"name": "r"}, "status": status}
        return change(sequence, sequence, kind="AcceleratorRollout", name="r", event=event, body=body)

    timeline = Timeline(
        [
            seen(1, {}),
            seen(2, {"replicas": 1}),
            seen(3, {"replicas": 1}),
            seen(4, {"replicas": 2}),
            seen(5, {"replicas": 3}, EventType.DELETED),
        ]
    )
    assert timeline.statuses("r") == [{}, {"replicas": 1}, {"replicas": 2}]


def test_a_recording_reads_back_and_a_line_cut_short_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    path.write_text(change(0, 1).as_json() + "\n" + change(1, 2).as_json()[:20])

    assert Timeline.load(path).events() == [change(0, 1)]


def test_trimming_drops_the_bloat_and_leaves_the_original_alone() -> None:
    body = {
        "metadata": {
            "name": "d",
            "managedFields": [{}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "mine": "x"},
        }
    }
    assert trimmed(body) == {"metadata": {"name": "d", "annotations": {"mine": "x"}}}
    assert "managedFields" in body["metadata"]


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        (
            "Pod",
            {"spec": {"schedulingGates": [{"name": "accelerator-rollout.dev/device-release"}]}, "status": {}},
            "gated by accelerator-rollout.dev/device-release",
        ),
        (
            "Pod",
            {
                "spec": {"nodeName": "node-a"},
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
            },
            "Running ready on node-a",
        ),
        ("ResourceClaim", {"status": {}}, "not allocated"),
        (
            "ResourceClaim",
            {
                "status": {
                    "allocation": {"devices": {"results": [{"pool": "node-a", "device": "lpu-0"}]}},
                    "reservedFor": [{"name": "llm-0"}],
                }
            },
            "allocated node-a/lpu-0 reserved for llm-0",
        ),
        (
            "ResourceSlice",
            {"spec": {"pool": {"generation": 3}, "devices": [{}, {}]}},
            "generation 3, 2 devices",
        ),
        ("Event", {"reason": "Scheduled", "message": "to node-a"}, "Scheduled to node-a"),
    ],
)
def test_a_line_of_the_timeline_says_what_matters_about_its_kind(
    kind: str, body: dict[str, Any], words: str
) -> None:
    assert summary(change(0, 1, kind=kind, body={"metadata": {}, **body})) == words


class ScriptedServer:
    """An API server that knows pods only, and answers lists and watches as the test says."""

    def __init__(self) -> None:
        self.pods: list[dict[str, Any]] = []
        self.version = 10
        self.watches: list[str] = []
        self.events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    def pod(self, name: str, version: int) -> dict[str, Any]:
        metadata = {
            "name": name,
            "namespace": "models",
            "uid": f"uid-{name}",
            "resourceVersion": str(version),
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            metadata = {"resourceVersion": str(self.version)}
            return web.json_response(
                {"apiVersion": "v1", "kind": "PodList", "metadata": metadata, "items": self.pods}
            )
        self.watches.append(request.query["resourceVersion"])
        response = web.StreamResponse()
        await response.prepare(request)
        while (event := await self.events.get()) is not None:
            await response.write(json.dumps(event).encode() + b"\n")
        return response


@pytest.fixture
async def server() -> AsyncIterator[tuple[ScriptedServer, Api]]:
    scripted = ScriptedServer()
    app = web.Application()
    app.router.add_get("/api/v1/namespaces/models/pods", scripted.answer)
    async with TestServer(app) as http, Api(Connection(server=str(http.make_url("")).rstrip("/"))) as api:
        yield scripted, api
        await scripted.events.put(None)


async def test_an_expired_watch_is_survived_and_what_was_missed_is_recorded_as_found_by_a_list(
    server: tuple[ScriptedServer, Api], tmp_path: Path
) -> None:
    scripted, api = server
    scripted.pods = [scripted.pod("stays", 1), scripted.pod("changes", 2), scripted.pod("goes", 3)]
    path = tmp_path / "recording.jsonl"
    async with Recorder(api, path, namespace="models", resources=(PODS,)) as recorder:
        await scripted.events.put({"type": "MODIFIED", "object": scripted.pod("stays", 11)})
        await recorder.until(lambda one: one.version == 11)

        scripted.pods = [scripted.pod("stays", 11), scripted.pod("changes", 15), scripted.pod("comes", 16)]
        scripted.version = 20
        expired = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
        await scripted.events.put({"type": "ERROR", "object": expired})
        await recorder.until(lambda one: one.name == "comes", timeout=5)

        found = [(one.type, one.name, one.version) for one in recorder.events() if one.version > 11]
        assert found == [
            (EventType.MODIFIED, "changes", 15),
            (EventType.ADDED, "comes", 16),
            (EventType.DELETED, "goes", 20),
        ]
        assert {one.source for one in recorder.events() if one.version > 11} == {Source.LIST}
    assert Timeline.load(path).events() == recorder.events()


async def test_a_watch_that_merely_ends_goes_on_where_it_stopped(server: tuple[ScriptedServer, Api]) -> None:
    scripted, api = server
    async with Recorder(api, namespace="models", resources=(PODS,)) as recorder:
        await scripted.events.put({"type": "ADDED", "object": scripted.pod("first", 11)})
        await scripted.events.put(None)
        await scripted.events.put({"type": "ADDED", "object": scripted.pod("second", 12)})
        await recorder.until(lambda one: one.name == "second", timeout=5)

    assert scripted.watches == ["10", "11"]
    assert {one.source for one in recorder.events()} == {Source.WATCH}


async def test_a_kind_that_the_server_does_not_have_does_not_keep_the_recorder_from_starting(
    server: tuple[ScriptedServer, Api],
) -> None:
    scripted, api = server
    scripted.pods = [scripted.pod("llm-0", 1)]
    async with Recorder(api, namespace="models", resources=(PODS, ACCELERATOR_ROLLOUTS)) as recorder:
        assert [one.name for one in recorder.events()] == ["llm-0"]


async def test_waiting_in_vain_fails_with_the_timeline(server: tuple[ScriptedServer, Api]) -> None:
    scripted, api = server
    scripted.pods = [scripted.pod("llm-0", 1)]
    async with Recorder(api, namespace="models", resources=(PODS,)) as recorder:
        with pytest.raises(
            TimeoutError, match=r"the pod is Ready did not come within 0\.05 s\ntimeline:.*\n.*llm-0"
        ):
            await recorder.until(lambda one: one.name == "other", 0.05, what="the pod is Ready")
