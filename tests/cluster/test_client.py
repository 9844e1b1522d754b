"""Each write, on the real API server and under the operator's own rights: it does what it says, and refuses what has changed."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio.client.configuration import Configuration

from accelerator_rollout.act.client import ApiClient
from accelerator_rollout.act.events import Events, Subject
from accelerator_rollout.act.reporter import Reporter
from accelerator_rollout.act.rights import Right, missing
from accelerator_rollout.api.models import Unreadable
from accelerator_rollout.clock import utc_now
from accelerator_rollout.decide.outcome import EventType, Notice
from accelerator_rollout.errors import (
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotLeadingError,
    RefusedError,
    UnavailableError,
)
from accelerator_rollout.names import (
    DELETION_COST_ANNOTATION,
    FINALIZER,
    GATE,
    GATE_LABEL,
    MANAGED_LABEL,
    PARKED_ANNOTATION,
)
from accelerator_rollout.observe import project
from accelerator_rollout.observe.kinds import SOURCES, Kind, Served
from accelerator_rollout.observe.login import configuration_from
from lab.client import Api
from lab.install import Account
from lab.resources import (
    ACCELERATOR_ROLLOUTS,
    DEPLOYMENTS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    Resource,
)

EVENTS = Resource("events.k8s.io", "v1", "events")
SERVED = tuple(Served(source, source.versions[0]) for source in SOURCES.values())
FOREIGN = "other.example.com/wait"
UNKNOWN_UID = "00000000-0000-0000-0000-000000000000"
CONTAINERS = [{"name": "main", "image": "pause"}]


class Lease:
    """Leadership that a test gives and takes."""

    held = True

    def allows(self) -> bool:
        return self.held

    def seconds_left(self) -> float:
        return 60.0


@pytest.fixture
def lease() -> Lease:
    return Lease()


@pytest.fixture
def counted() -> Counter[tuple[str, str, str]]:
    return Counter()


@pytest.fixture
async def client(
    account: Account, admin: Api, lease: Lease, counted: Counter[tuple[str, str, str]], tmp_path: Any
) -> AsyncIterator[ApiClient]:
    """The client with the operator's rights."""
    path = tmp_path / "operator.kubeconfig"
    connection = await account.connection(admin)
    connection.write_kubeconfig(path, context="lab", user=account.username, namespace=account.namespace)
    found = ApiClient(
        configuration_from(str(path)),
        lambda: SERVED,
        lease,
        lambda verb, resource, code: counted.update([(verb, resource, code)]),
    )
    yield found
    await found.close()
    await asyncio.sleep(0.05)  # TLS connections close a moment after their session


def pod(name: str = "one", *, gates: tuple[str, ...] = (GATE,), **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": CONTAINERS, "schedulingGates": [{"name": gate} for gate in gates]},
    }


def deployment(*, gated: bool = False, **spec: Any) -> dict[str, Any]:
    labels = {"app": "web"} | ({GATE_LABEL: "true"} if gated else {})
    template = {"metadata": {"labels": labels}, "spec": {"containers": CONTAINERS}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "labels": {"theirs": "stays"}, "annotations": {"theirs": "stays"}},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": template} | spec,
    }


def rollout(**spec: Any) -> dict[str, Any]:
    ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return {
        "apiVersion": "accelerator-rollout.dev/v1alpha1",
        "kind": "AcceleratorRollout",
        "metadata": {"name": "web"},
        "spec": {"workloadRef": ref, **spec},
    }


def gates_of(raw: Any) -> list[str]:
    return [gate["name"] for gate in raw["spec"].get("schedulingGates") or []]


def uid(raw: Any) -> str:
    return str(raw["metadata"]["uid"])


def version(raw: Any) -> str:
    return str(raw["metadata"]["resourceVersion"])


def at_its_version(admin: Api, namespace: str) -> Callable[[Callable[[str], Awaitable[Any]]], Awaitable[Any]]:
    """Return how to write to the Deployment, whose controller writes to it too: read and try, until nobody is between."""

    async def attempt(write: Callable[[str], Awaitable[Any]]) -> Any:
        async with asyncio.timeout(20):
            while True:
                try:
                    return await write(version(await admin.get(DEPLOYMENTS, "web", namespace)))
                except ConflictError:
                    await asyncio.sleep(0.05)

    return attempt


# Gates


async def test_opening_removes_our_gate_and_leaves_the_others(
    client: ApiClient, admin: Api, namespace: str
) -> None:
    made = await admin.create(PODS, pod(gates=(FOREIGN, GATE)), namespace)
    opened = await client.open_gate(namespace, "one", uid(made))
    assert gates_of(opened) == [FOREIGN]


async def test_a_gate_may_be_opened_twice(client: ApiClient, admin: Api, namespace: str) -> None:
    made = await admin.create(PODS, pod(gates=(FOREIGN, GATE)), namespace)
    await client.open_gate(namespace, "one", uid(made))
    assert gates_of(await client.open_gate(namespace, "one", uid(made))) == [FOREIGN]


async def test_a_reborn_pod_is_not_opened(client: ApiClient, admin: Api, namespace: str) -> None:
    first = await admin.create(PODS, pod(), namespace)
    await admin.delete(PODS, "one", namespace, grace_seconds=0)
    await admin.create(PODS, pod(), namespace)
    with pytest.raises(ConflictError):
        await client.open_gate(namespace, "one", uid(first))
    assert gates_of(await admin.get(PODS, "one", namespace)) == [GATE]


async def test_a_pod_that_is_gone_is_told_as_gone(client: ApiClient, namespace: str) -> None:
    with pytest.raises(GoneError):
        await client.open_gate(namespace, "one", UNKNOWN_UID)


# Evictions and costs


async def test_an_eviction_is_a_graceful_deletion(client: ApiClient, admin: Api, namespace: str) -> None:
    made = await admin.create(PODS, pod(), namespace)
    await client.evict(namespace, "one", uid(made))
    assert await admin.find(PODS, "one", namespace) is None  # never bound, so nothing had to end


async def test_a_reborn_pod_is_not_evicted(client: ApiClient, admin: Api, namespace: str) -> None:
    await admin.create(PODS, pod(), namespace)
    with pytest.raises(ConflictError):
        await client.evict(namespace, "one", UNKNOWN_UID)
    assert await admin.find(PODS, "one", namespace) is not None


async def test_a_budget_refuses_an_eviction_and_is_named(
    client: ApiClient, admin: Api, namespace: str
) -> None:
    made = await admin.create(PODS, pod(gates=(), app="web"), namespace)
    # A pod that is not ready may be evicted in spite of any budget, unless it is running.
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await admin.patch(PODS, "one", {"status": status}, namespace, subresource="status")
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep-all"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}},
    }
    await admin.create(POD_DISRUPTION_BUDGETS, budget, namespace)
    with pytest.raises(RefusedError, match="disruption budget keep-all"):
        await client.evict(namespace, "one", uid(made))
    assert (await admin.get(PODS, "one", namespace))["metadata"].get("deletionTimestamp") is None


async def test_a_cost_is_set_on_the_pod_that_was_meant(client: ApiClient, admin: Api, namespace: str) -> None:
    made = await admin.create(PODS, pod(), namespace)
    costly = await client.set_cost(namespace, "one", uid(made), -7)
    assert costly["metadata"]["annotations"] == {DELETION_COST_ANNOTATION: "-7"}
    with pytest.raises(ConflictError):
        await client.set_cost(namespace, "one", UNKNOWN_UID, -8)


# Deployments


async def test_pausing_and_resuming_touches_nothing_else(
    client: ApiClient, admin: Api, namespace: str
) -> None:
    made = await admin.create(DEPLOYMENTS, deployment(), namespace)
    managed = await client.label_managed(namespace, "web", uid(made))
    assert managed["metadata"]["labels"] == {"theirs": "stays", MANAGED_LABEL: "true"}
    current = at_its_version(admin, namespace)
    paused = await current(lambda v: client.pause(namespace, "web", uid(made), v, "step-taken"))
    assert paused["spec"]["paused"]
    assert paused["metadata"]["annotations"][PARKED_ANNOTATION] == "step-taken"
    free = await current(lambda v: client.unpause(namespace, "web", uid(made), v))
    assert not free["spec"].get("paused")
    assert PARKED_ANNOTATION not in free["metadata"]["annotations"]
    assert free["metadata"]["annotations"]["theirs"] == "stays"
    left = await current(lambda v: client.unmanage(namespace, "web", uid(made), v, unpause=False))
    assert left["metadata"]["labels"] == {"theirs": "stays"}
    assert left["spec"]["template"] == made["spec"]["template"]


async def test_a_former_template_takes_the_place_of_the_present_one_and_parks(
    client: ApiClient, admin: Api, namespace: str
) -> None:
    """What the present one has and the former lacks goes, also in maps and lists that a patch would merge."""
    body = deployment(gated=True)
    body["spec"]["template"]["metadata"]["annotations"] = {"present": "goes"}
    body["spec"]["template"]["spec"]["nodeSelector"] = {"present": "goes"}
    made = await admin.create(DEPLOYMENTS, body, namespace)
    former = deployment(gated=True)["spec"]["template"]
    former["spec"]["containers"] = [{"name": "another", "image": "another:v0"}]

    def write(at: str) -> Awaitable[Any]:
        return client.write_template(
            Kind.DEPLOYMENTS, namespace, "web", uid(made), at, former, parked="template-changed"
        )

    written = await at_its_version(admin, namespace)(write)
    template = written["spec"]["template"]
    assert "annotations" not in template["metadata"]
    assert "nodeSelector" not in template["spec"]
    assert [c["name"] for c in template["spec"]["containers"]] == ["another"]
    assert written["spec"]["paused"] is True
    assert written["metadata"]["annotations"][PARKED_ANNOTATION] == "template-changed"
    assert written["metadata"]["annotations"]["theirs"] == "stays"
    for of, at in ((uid(made), "1"), ("another", version(written))):
        with pytest.raises(ConflictError):
            await client.write_template(
                Kind.DEPLOYMENTS, namespace, "web", of, at, former, parked="template-changed"
            )


async def test_a_persons_pause_outlives_us(client: ApiClient, admin: Api, namespace: str) -> None:
    made = await admin.create(DEPLOYMENTS, deployment(paused=True), namespace)
    await client.label_managed(namespace, "web", uid(made))
    current = at_its_version(admin, namespace)
    left = await current(lambda v: client.unmanage(namespace, "web", uid(made), v, unpause=False))
    assert left["spec"]["paused"]


@pytest.mark.parametrize("wrong", ["uid", "version"])
async def test_a_deployment_that_is_not_the_one_decided_on_stays_as_it_is(
    client: ApiClient, admin: Api, namespace: str, wrong: str
) -> None:
    made = await admin.create(DEPLOYMENTS, deployment(), namespace)
    current = await client.label_managed(namespace, "web", uid(made))
    who = UNKNOWN_UID if wrong == "uid" else uid(made)
    when = version(made) if wrong == "version" else version(current)
    with pytest.raises(ConflictError):
        await client.pause(namespace, "web", who, when, "step-taken")
    with pytest.raises(ConflictError):
        await client.unpause(namespace, "web", who, when)
    with pytest.raises(ConflictError):
        await client.unmanage(namespace, "web", who, when, unpause=True)
    found = await admin.get(DEPLOYMENTS, "web", namespace)
    assert found["spec"] == made["spec"]


# Our own object


async def test_a_status_replaces_the_one_before(client: ApiClient, admin: Api, namespace: str) -> None:
    made = await admin.create(ACCELERATOR_ROLLOUTS, rollout(), namespace)
    first = await client.write_status(
        namespace, "web", uid(made), version(made), {"replicas": 4, "updateRevision": "abc"}
    )
    assert first["status"] == {"replicas": 4, "updateRevision": "abc"}
    second = await client.write_status(namespace, "web", uid(made), version(first), {"replicas": 5})
    assert second["status"] == {"replicas": 5}
    assert second["metadata"]["generation"] == made["metadata"]["generation"]


async def test_a_status_of_an_older_decision_is_a_conflict(
    client: ApiClient, admin: Api, namespace: str
) -> None:
    made = await admin.create(ACCELERATOR_ROLLOUTS, rollout(), namespace)
    await client.write_status(namespace, "web", uid(made), version(made), {"replicas": 4})
    with pytest.raises(ConflictError):
        await client.write_status(namespace, "web", uid(made), version(made), {"replicas": 5})
    found = await admin.get(ACCELERATOR_ROLLOUTS, "web", namespace)
    with pytest.raises(ConflictError):
        await client.write_status(namespace, "web", UNKNOWN_UID, version(found), {"replicas": 5})
    assert (await admin.get(ACCELERATOR_ROLLOUTS, "web", namespace))["status"] == {"replicas": 4}


async def test_a_status_that_the_schema_refuses_is_a_defect_and_no_conflict(
    client: ApiClient, admin: Api, namespace: str
) -> None:
    made = await admin.create(ACCELERATOR_ROLLOUTS, rollout(), namespace)
    with pytest.raises(InvalidError, match="replicas"):
        await client.write_status(namespace, "web", uid(made), version(made), {"replicas": "four"})


async def test_finalizers_are_written_as_they_were_read(
    client: ApiClient, admin: Api, namespace: str
) -> None:
    made = await admin.create(ACCELERATOR_ROLLOUTS, rollout(), namespace)
    held = await client.write_finalizers(namespace, "web", uid(made), version(made), [FINALIZER])
    assert held["metadata"]["finalizers"] == [FINALIZER]
    with pytest.raises(ConflictError):
        await client.write_finalizers(namespace, "web", uid(made), version(made), [])
    free = await client.write_finalizers(namespace, "web", uid(made), version(held), [])
    assert "finalizers" not in free["metadata"]


# Dry runs and Events


async def test_a_dry_run_tells_of_the_policy_and_creates_nothing(
    client: ApiClient, admin: Api, namespace: str
) -> None:
    for gated in (True, False):
        template = deployment(gated=gated)["spec"]["template"]
        told = await client.try_pod(namespace, template)
        assert gates_of(told) == ([GATE] if gated else [])
    assert (await admin.list(PODS, namespace)).items == []


async def test_a_template_that_the_server_refuses_is_told_as_invalid(
    client: ApiClient, namespace: str
) -> None:
    with pytest.raises(InvalidError, match="containers"):
        await client.try_pod(namespace, {"spec": {"containers": []}})


async def test_an_event_is_recorded_about_a_pod(client: ApiClient, admin: Api, namespace: str) -> None:
    made = await admin.create(PODS, pod(), namespace)
    events = Events(client, utc_now, "test")
    await events.say(
        Subject.pod(project.pod(made)), Notice(EventType.NORMAL, "GateOpened", "free", "OpenGate")
    )
    (found,) = (await admin.list(EVENTS, namespace)).items
    assert found["regarding"]["uid"] == uid(made)
    assert (found["reason"], found["action"], found["note"]) == ("GateOpened", "OpenGate", "free")


async def test_what_is_said_again_is_counted_in_the_same_event(
    client: ApiClient, admin: Api, namespace: str
) -> None:
    made = project.pod(await admin.create(PODS, pod(), namespace))
    events = Events(client, utc_now, "test")
    for words in ("free", "free again", "and again"):
        await events.say(Subject.pod(made), Notice(EventType.NORMAL, "GateOpened", words, "OpenGate"))
    (found,) = (await admin.list(EVENTS, namespace)).items
    assert (found["note"], found["series"]["count"]) == ("free", 2)
    await admin.delete(EVENTS, found["metadata"]["name"], namespace)
    await events.say(Subject.pod(made), Notice(EventType.NORMAL, "GateOpened", "once more", "OpenGate"))
    (anew,) = (await admin.list(EVENTS, namespace)).items
    assert anew["note"] == "once more"


# What has no AcceleratorRollout that can be decided on


async def test_a_gate_that_nobody_answers_for_is_opened(
    client: ApiClient, admin: Api, namespace: str
) -> None:
    reporter = Reporter(client, Events(client, utc_now, "test"), utc_now)
    made = await admin.create(PODS, pod(gates=(FOREIGN, GATE)), namespace)
    assert await reporter.release_stray(project.pod(made))
    assert gates_of(await admin.get(PODS, "one", namespace)) == [FOREIGN]
    assert len((await admin.list(EVENTS, namespace)).items) == 1


async def test_a_gate_that_somebody_answers_for_stays(client: ApiClient, admin: Api, namespace: str) -> None:
    reporter = Reporter(client, Events(client, utc_now, "test"), utc_now)
    await admin.create(DEPLOYMENTS, deployment(gated=True, replicas=1), namespace)
    await admin.create(ACCELERATOR_ROLLOUTS, rollout(), namespace)
    born: list[Any] = []
    async with asyncio.timeout(20):
        while not born:
            born = (await admin.list(PODS, namespace)).items
            await asyncio.sleep(0.05)
    assert not await reporter.release_stray(project.pod(born[0]))
    await admin.delete(ACCELERATOR_ROLLOUTS, "web", namespace)
    assert await reporter.release_stray(project.pod(born[0]))


async def test_an_object_that_cannot_be_read_says_so_and_keeps_the_rest_of_its_status(
    client: ApiClient, admin: Api, namespace: str
) -> None:
    made = await admin.create(ACCELERATOR_ROLLOUTS, rollout(), namespace)
    known = await client.write_status(namespace, "web", uid(made), version(made), {"replicas": 4})
    # As a newer version of the kind might have stored it; only the server's schema keeps it out here.
    found = project.rollout({**known, "spec": known["spec"] | {"strategy": {"unheardOf": 1}}})
    assert isinstance(found, Unreadable)
    reporter = Reporter(client, Events(client, utc_now, "test"), utc_now)
    await reporter.report_unreadable(found)
    told = await admin.get(ACCELERATOR_ROLLOUTS, "web", namespace)
    assert told["status"]["replicas"] == 4
    said = {c["type"]: (c["status"], c["reason"]) for c in told["status"]["conditions"]}
    assert said["Stalled"] == ("True", "SpecUnreadable")
    assert said["Ready"] == ("False", "SpecUnreadable")
    again = project.rollout(told | {"spec": told["spec"] | {"strategy": {"unheardOf": 1}}})
    assert isinstance(again, Unreadable)
    await reporter.report_unreadable(again)
    assert version(await admin.get(ACCELERATOR_ROLLOUTS, "web", namespace)) == version(told)


# Rights, leadership, and a server that does not answer


async def test_the_operators_role_has_all_the_rights_that_are_needed(client: ApiClient) -> None:
    assert await missing(client) == ()


async def test_a_right_that_is_lacking_is_named(client: ApiClient) -> None:
    assert not await client.may(Right("delete", "", "pods"), "")


async def test_the_parking_policy_is_seen(client: ApiClient) -> None:
    assert await client.parks() is True


async def test_without_leadership_nothing_is_sent(
    client: ApiClient, admin: Api, namespace: str, lease: Lease, counted: Counter[tuple[str, str, str]]
) -> None:
    made = await admin.create(PODS, pod(), namespace)
    lease.held = False
    for attempt in (
        client.open_gate(namespace, "one", uid(made)),
        client.evict(namespace, "one", uid(made)),
        client.try_pod(namespace, deployment()["spec"]["template"]),
        client.record_event(namespace, {}),
        client.write_status(namespace, "web", UNKNOWN_UID, "1", {}),
    ):
        with pytest.raises(NotLeadingError):
            await attempt
    assert counted == Counter()
    assert await client.read(Kind.PODS, namespace, "one") is not None  # reads are free


async def test_what_the_role_does_not_allow_is_told_as_forbidden(
    client: ApiClient, admin: Api, namespace: str
) -> None:
    made = await admin.create(DEPLOYMENTS, deployment(), namespace)
    body = {"metadata": {"uid": uid(made)}, "spec": {"replicas": 3}}
    with pytest.raises(ForbiddenError):
        await client._write("patch", Kind.DEPLOYMENTS, namespace, "web", "", body)


async def test_requests_are_counted_by_what_they_did(
    client: ApiClient, admin: Api, namespace: str, counted: Counter[tuple[str, str, str]]
) -> None:
    made = await admin.create(PODS, pod(), namespace)
    await client.read(Kind.PODS, namespace, "one")
    await client.read(Kind.PODS, namespace, "two")
    await client.evict(namespace, "one", uid(made))
    assert counted == {
        ("get", "pods", "200"): 1,
        ("get", "pods", "404"): 1,
        ("post", "pods/eviction", "201"): 1,
    }


async def test_a_kind_that_is_not_served_has_no_objects(client: ApiClient) -> None:
    nothing = ApiClient(client._load, lambda: (), Lease())
    assert await nothing.read_all(Kind.TAINT_RULES) == []
    await nothing.close()


class Busy:
    """A server that answers as it is told."""

    def __init__(self) -> None:
        self.answers: list[web.Response | float] = []
        self.asked = 0

    async def answer(self, _: web.Request) -> web.Response:
        self.asked += 1
        said = self.answers.pop(0)
        if isinstance(said, float):
            await asyncio.sleep(said)
            return web.json_response({})
        return said


@pytest.fixture
async def busy() -> AsyncIterator[tuple[Busy, ApiClient]]:
    found = Busy()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", found.answer)
    runner = web.AppRunner(application, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()

    async def load() -> Configuration:
        configuration = Configuration()
        configuration.host = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return configuration

    client = ApiClient(load, lambda: SERVED, Lease(), timeout_seconds=0.3)
    yield found, client
    await client.close()
    await runner.cleanup()


def status(code: int, **headers: str) -> web.Response:
    return web.json_response(
        {"kind": "Status", "message": "because of the test"}, status=code, headers=headers
    )


async def test_a_busy_servers_wish_is_kept(busy: tuple[Busy, ApiClient]) -> None:
    server, client = busy
    server.answers = [status(429, **{"Retry-After": "120"})]
    with pytest.raises(UnavailableError) as caught:
        await client.open_gate("team", "one", "uid")
    assert caught.value.retry_after == 120


@pytest.mark.parametrize("code", [500, 502, 503, 504])
async def test_a_server_in_trouble_is_asked_later(busy: tuple[Busy, ApiClient], code: int) -> None:
    server, client = busy
    server.answers = [status(code)]
    with pytest.raises(UnavailableError, match="because of the test"):
        await client.read(Kind.PODS, "team", "one")


async def test_several_budgets_on_a_pod_are_a_refusal(busy: tuple[Busy, ApiClient]) -> None:
    server, client = busy
    said = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    server.answers = [web.json_response({"kind": "Status", "message": said}, status=500)]
    with pytest.raises(RefusedError, match="more than one"):
        await client.evict("team", "one", "uid")


async def test_a_silent_server_is_not_waited_for(busy: tuple[Busy, ApiClient]) -> None:
    server, client = busy
    server.answers = [5.0]
    with pytest.raises(UnavailableError, match="does not answer"):
        await client.read(Kind.PODS, "team", "one")


async def test_rejected_credentials_are_asked_for_anew_once(busy: tuple[Busy, ApiClient]) -> None:
    server, client = busy
    server.answers = [status(401), web.json_response({"metadata": {}})]
    assert await client.read(Kind.PODS, "team", "one") == {"metadata": {}}
    server.answers = [status(401), status(401)]
    with pytest.raises(ForbiddenError):
        await client.read(Kind.PODS, "team", "one")
    assert server.asked == 4


async def test_a_server_that_is_not_there_is_told_as_such() -> None:
    async def load() -> Configuration:
        configuration = Configuration()
        configuration.host = "http://127.0.0.1:9"
        return configuration

    client = ApiClient(load, lambda: SERVED, Lease())
    with pytest.raises(UnavailableError, match="does not answer"):
        await client.read(Kind.PODS, "team", "one")
    await client.close()
