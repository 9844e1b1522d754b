"""The executor confirms each act by fresh reads, keeps the order that the plan asks for, and stops where the world moved."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from accelerator_rollout.act import executor as executor_module
from accelerator_rollout.act.confirming import Confirming
from accelerator_rollout.act.events import Events
from accelerator_rollout.act.executor import Backlog, Executor, Outcome, Planner, Watched
from accelerator_rollout.api.models import RolloutObject
from accelerator_rollout.decide.actions import (
    Action,
    AddFinalizer,
    CheckHealth,
    EndHold,
    EvictPod,
    HoldClaim,
    ManageDeployment,
    OpenGate,
    ParkReason,
    PauseDeployment,
    ProbeGate,
    RemoveFinalizer,
    RestoreTemplate,
    UnmanageDeployment,
)
from accelerator_rollout.decide.outcome import EventType, Notice, Plan
from accelerator_rollout.decide.patience import NEWS, PROOF
from accelerator_rollout.decide.snapshot import Freshness, GateSource, Snapshot
from accelerator_rollout.errors import (
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotLeadingError,
    RefusedError,
    UnavailableError,
)
from accelerator_rollout.names import FINALIZER, GATE
from accelerator_rollout.observe import project
from accelerator_rollout.observe.devices import claim as parse_claim
from accelerator_rollout.observe.kinds import Kind
from accelerator_rollout.records import ClaimRecord, Device, Taint
from unit.observe import objects as o

NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
MANAGE = ManageDeployment("web", "uid-web")
UNMANAGE = UnmanageDeployment("web", "uid-web")
PAUSE = PauseDeployment("web", "uid-web", ParkReason.STEP_TAKEN)
EVICT = EvictPod("web-1", "uid-web-1")
OPEN_A, OPEN_B = OpenGate("a", "uid-a", ""), OpenGate("b", "uid-b", "")
ADD, REMOVE = AddFinalizer("uid-arol-web"), RemoveFinalizer("uid-arol-web")
STATUS = "write_status"


@dataclass
class FakeCluster:
    """A cluster as the Client shows it: objects by kind and name, and what was asked of it, in order."""

    objects: dict[tuple[Kind, str], dict[str, Any]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    fails: dict[str, Exception] = field(default_factory=dict)
    gated_by_policy: bool = True

    def put(self, kind: Kind, raw: dict[str, Any]) -> None:
        self.objects[kind, raw["metadata"]["name"]] = raw

    def _called(self, what: str) -> None:
        self.calls.append(what)
        if what in self.fails:
            raise self.fails[what]

    def _written(self, kind: Kind, name: str, **meta: Any) -> dict[str, Any]:
        raw = self.objects[kind, name]
        raw["metadata"] |= {"resourceVersion": o.next_version(), **meta}
        return raw

    async def read(self, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
        return self.objects.get((kind, name))

    async def read_all(self, kind: Kind, namespace: str = "", fields: str = "") -> list[Mapping[str, Any]]:
        return [raw for (known, _), raw in self.objects.items() if known is kind]

    async def write_status(
        self, namespace: str, name: str, uid: str, version: str, status: Mapping[str, Any]
    ) -> dict[str, Any]:
        self._called(STATUS)
        assert version == self.objects[Kind.ROLLOUTS, name]["metadata"]["resourceVersion"]
        raw = self._written(Kind.ROLLOUTS, name)
        raw["status"] = dict(status)
        return raw

    async def write_conditions(
        self,
        namespace: str,
        name: str,
        uid: str,
        version: str,
        generation: int,
        conditions: Sequence[Mapping[str, Any]],
    ) -> dict[str, Any]:
        raise NotImplementedError

    async def write_finalizers(
        self, namespace: str, name: str, uid: str, version: str, finalizers: list[str]
    ) -> dict[str, Any]:
        self._called(f"finalizers {','.join(finalizers)}")
        return self._written(Kind.ROLLOUTS, name, finalizers=finalizers)

    async def label_managed(self, namespace: str, name: str, uid: str) -> dict[str, Any]:
        self._called("label_managed")
        return self._written(Kind.DEPLOYMENTS, name)

    async def unmanage(
        self, namespace: str, name: str, uid: str, version: str, *, unpause: bool
    ) -> dict[str, Any]:
        self._called("unmanage and unpause" if unpause else "unmanage")
        return self._written(Kind.DEPLOYMENTS, name)

    async def hold_claim(self, claim: ClaimRecord, name: str, uid: str) -> dict[str, Any]:
        self._called(f"hold {claim.name}")
        return self._reserved(claim, lambda entries: [*entries, o.reserved_for_rollout(name, uid)])

    async def end_hold(self, claim: ClaimRecord, uid: str, *, deallocate: bool) -> dict[str, Any]:
        self._called(f"end hold of {claim.name}" + (", deallocating" if deallocate else ""))
        if deallocate:
            self.objects[Kind.CLAIMS, claim.name]["status"] = {}
        return self._reserved(claim, lambda entries: [e for e in entries if e["uid"] != uid])

    async def reserve_device(
        self, device: Device, name: str, taint: Taint, labels: Mapping[str, str]
    ) -> dict[str, Any]:
        self._called(f"reserve {device}")
        return o.taint_rule(name, selector={"driver": device.driver})

    async def end_reservation(self, name: str, uid: str) -> None:
        self._called(f"end reservation {name}")

    def _reserved(self, claim: ClaimRecord, change: Callable[[list[Any]], list[Any]]) -> dict[str, Any]:
        raw = self._written(Kind.CLAIMS, claim.name)
        assert raw["metadata"]["uid"] == claim.uid
        raw["status"]["reservedFor"] = change(raw["status"].get("reservedFor") or [])
        return raw

    async def pause(self, namespace: str, name: str, uid: str, version: str, reason: str) -> dict[str, Any]:
        self._called("pause")
        return self._written(Kind.DEPLOYMENTS, name)

    async def unpause(self, namespace: str, name: str, uid: str, version: str) -> dict[str, Any]:
        self._called("unpause")
        return self._written(Kind.DEPLOYMENTS, name)

    async def write_template(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        uid: str,
        version: str,
        template: Mapping[str, Any],
        *,
        parked: str,
    ) -> dict[str, Any]:
        self._called(f"write_template {kind} {name} {parked}")
        assert version == self.objects[kind, name]["metadata"]["resourceVersion"]
        raw = self._written(kind, name)
        raw["spec"]["template"] = dict(template)
        return raw

    async def set_cost(self, namespace: str, name: str, uid: str, cost: int) -> dict[str, Any]:
        self._called("set_cost")
        return self._written(Kind.PODS, name)

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        self._called(f"evict {name}")

    async def guard(self, namespace: str, name: str, uid: str, *, on: bool) -> dict[str, Any]:
        self._called(f"guard {name}" if on else f"end guard of {name}")
        return self._written(Kind.PODS, name)

    async def open_gate(
        self, namespace: str, name: str, uid: str, hostname: str = "", *, guard: bool = False
    ) -> dict[str, Any]:
        self._called(f"open {name}" + (f" on {hostname}" if hostname else ""))
        return self._written(Kind.PODS, name)

    async def try_pod(self, namespace: str, template: Mapping[str, Any]) -> dict[str, Any]:
        self._called("try_pod")
        return {"spec": {"schedulingGates": [{"name": GATE}] if self.gated_by_policy else None}}

    async def count_event(self, namespace: str, name: str, count: int, last: str) -> None:
        raise NotImplementedError

    async def record_event(self, namespace: str, event: Mapping[str, Any]) -> None:
        self._called(f"event {event['reason']}")


class Told:
    def __init__(self) -> None:
        self.results: list[tuple[str, str]] = []

    def acted(self, action: Action, result: str) -> None:
        self.results.append((type(action).__name__, result))


@pytest.fixture
def cluster() -> FakeCluster:
    found = FakeCluster()
    found.put(Kind.ROLLOUTS, o.rollout() | {"status": {}})
    found.put(Kind.DEPLOYMENTS, o.deployment())
    for name in ("web-1", "a", "b"):
        found.put(Kind.PODS, o.pod(name))
    return found


@pytest.fixture
def told() -> Told:
    return Told()


def snapshot(cluster: FakeCluster) -> Snapshot:
    found = project.rollout(cluster.objects[Kind.ROLLOUTS, "web"])
    assert isinstance(found, RolloutObject)
    workload = project.project(Kind.DEPLOYMENTS, cluster.objects[Kind.DEPLOYMENTS, "web"])
    return Snapshot(
        rollout=found,
        rivals=(),
        workload=workload,  # type: ignore[arg-type]
        replica_sets=(),
        pods=tuple(project.pod(cluster.objects[Kind.PODS, name]) for name in ("web-1", "a", "b")),
        vanished=(),
        claims={},
        holders={},
        slices=(),
        taint_rules=(),
        nodes={},
        budgets=(),
        freshness=Freshness.FRESH,
        watched_since=None,
    )


def plan_of(cluster: FakeCluster, *actions: Action, record_first: bool = False, **more: Any) -> Plan:
    status = snapshot(cluster).rollout.status.model_copy(update={"replicas": 7})
    return Plan(actions, status, record_first=record_first, next_due=None, **more)


def ignored(kind: Kind, raw: Mapping[str, Any]) -> None:
    """A store that does not care."""


def executor(cluster: FakeCluster, told: Told, planner: Planner, watched: Watched = ignored) -> Executor:
    def clock() -> datetime:
        return NOW

    return Executor(
        cluster,
        Confirming(cluster, watched=watched),
        Events(cluster, clock, "test"),
        watched,
        told,
        clock,
        planner,
    )


async def carry_out(cluster: FakeCluster, told: Told, plan: Plan, again: Plan | None = None) -> Any:
    """Carry out `plan` where a second decision over fresh reads says `again` (the same, by default)."""
    return await executor(cluster, told, lambda _snapshot, _now: again or plan).run(snapshot(cluster), plan)


async def test_actions_come_before_the_status(cluster: FakeCluster, told: Told) -> None:
    outcome = await carry_out(cluster, told, plan_of(cluster, MANAGE, OPEN_A))
    assert cluster.calls == ["label_managed", "open a", STATUS]
    assert outcome.stored
    assert not outcome.moved


async def test_what_is_in_flight_is_stored_before_the_first_touch(cluster: FakeCluster, told: Told) -> None:
    await carry_out(cluster, told, plan_of(cluster, EVICT, record_first=True))
    assert cluster.calls == [STATUS, "evict web-1"]


async def test_nothing_is_touched_if_it_could_not_be_stored(cluster: FakeCluster, told: Told) -> None:
    cluster.fails[STATUS] = ConflictError("changed")
    with pytest.raises(ConflictError):
        await carry_out(cluster, told, plan_of(cluster, EVICT, record_first=True))
    assert cluster.calls == [STATUS]


async def test_an_unchanged_status_is_not_written(cluster: FakeCluster, told: Told) -> None:
    plan = plan_of(cluster)
    await carry_out(cluster, told, replace(plan, status=snapshot(cluster).rollout.status))
    assert cluster.calls == []


async def test_an_act_that_fresh_reads_do_not_ask_for_is_dropped(cluster: FakeCluster, told: Told) -> None:
    outcome = await carry_out(cluster, told, plan_of(cluster, EVICT), again=plan_of(cluster))
    assert cluster.calls == []
    assert told.results == [("EvictPod", "dropped")]
    assert outcome.moved
    assert not outcome.stored


@pytest.mark.parametrize(("confirmed", "told_of"), [(True, ["uid-web-1"]), (False, [])])
async def test_what_is_about_to_be_disrupted_is_told_before_unless_it_is_dropped(
    cluster: FakeCluster, told: Told, told_of: list[str], *, confirmed: bool
) -> None:
    plan = plan_of(cluster, EVICT)
    again = plan if confirmed else plan_of(cluster)
    cluster.fails["evict web-1"] = UnavailableError("the answer was lost")
    sent: list[str] = []
    acting = executor(cluster, told, lambda _snapshot, _now: again).run(
        snapshot(cluster), plan, None, sent.append
    )
    if confirmed:
        with pytest.raises(UnavailableError):
            await acting
    else:
        await acting
    assert sent == told_of


async def test_the_second_decision_sees_what_was_read_afresh(cluster: FakeCluster, told: Told) -> None:
    before = snapshot(cluster)
    cluster.objects[Kind.PODS, "web-1"]["metadata"]["uid"] = "reborn"
    seen: list[Snapshot] = []

    def planner(fresh: Snapshot, _now: datetime) -> Plan:
        seen.append(fresh)
        return plan_of(cluster)

    await executor(cluster, told, planner).run(before, plan_of(cluster, EVICT))
    assert {p.uid for p in seen[0].pods} == {"reborn", "uid-a", "uid-b"}
    assert [v.pod.uid for v in seen[0].vanished] == ["uid-web-1"]


async def test_what_hangs_on_a_dropped_act_waits_but_other_gates_open(
    cluster: FakeCluster, told: Told
) -> None:
    plan = plan_of(cluster, UNMANAGE, OPEN_A, OPEN_B, REMOVE)
    await carry_out(cluster, told, plan, again=plan_of(cluster, OPEN_B))
    assert cluster.calls == ["open b"]


@pytest.mark.parametrize("error", [ConflictError("changed"), GoneError("gone")])
async def test_after_a_conflict_the_rest_is_decided_anew(
    cluster: FakeCluster, told: Told, error: Exception
) -> None:
    cluster.fails["pause"] = error
    outcome = await carry_out(cluster, told, plan_of(cluster, PAUSE, EVICT))
    assert cluster.calls == ["pause"]
    assert outcome.moved
    assert not outcome.stored


async def test_one_pod_that_no_gate_can_be_opened_of_keeps_no_other_gate_closed(
    cluster: FakeCluster, told: Told
) -> None:
    cluster.fails["open a"] = InvalidError("a webhook of the cluster refuses")
    with pytest.raises(InvalidError):
        await carry_out(cluster, told, plan_of(cluster, OPEN_A, OPEN_B))
    assert cluster.calls == ["open a", "event ActionFailed", "open b", STATUS]


async def test_a_right_that_was_taken_away_is_told_where_people_look(
    cluster: FakeCluster, told: Told
) -> None:
    cluster.fails["evict web-1"] = ForbiddenError("pods/eviction is forbidden")
    with pytest.raises(ForbiddenError):
        await carry_out(cluster, told, plan_of(cluster, EVICT, record_first=True))
    assert cluster.calls[-1] == "event ActionFailed"


async def test_a_refused_eviction_is_told_to_the_next_decision(cluster: FakeCluster, told: Told) -> None:
    cluster.fails["evict web-1"] = RefusedError("the budget web allows no disruption")
    outcome = await carry_out(cluster, told, plan_of(cluster, EVICT, record_first=True))
    assert outcome.refused.pod_uid == "uid-web-1"
    assert "budget web" in outcome.refused.message
    assert outcome.again


@pytest.mark.parametrize("error", [NotLeadingError("no"), UnavailableError("no answer", 3.0)])
async def test_without_leadership_or_answer_nothing_more_is_tried(
    cluster: FakeCluster, told: Told, error: Exception
) -> None:
    cluster.fails["open a"] = error
    with pytest.raises(type(error)):
        await carry_out(cluster, told, plan_of(cluster, OPEN_A, OPEN_B))
    assert cluster.calls == ["open a"]


async def test_the_status_after_a_new_finalizer_meets_no_conflict(cluster: FakeCluster, told: Told) -> None:
    await carry_out(cluster, told, plan_of(cluster, ADD))
    assert cluster.calls == [f"finalizers {FINALIZER}", STATUS]


async def test_our_finalizer_alone_goes_and_no_status_follows(cluster: FakeCluster, told: Told) -> None:
    cluster.objects[Kind.ROLLOUTS, "web"]["metadata"]["finalizers"] = ["others/finalizer", FINALIZER]
    await carry_out(cluster, told, plan_of(cluster, REMOVE))
    assert cluster.calls == ["finalizers others/finalizer"]


async def test_a_finalizer_that_changed_meanwhile_is_decided_on_anew(
    cluster: FakeCluster, told: Told
) -> None:
    plan, before = plan_of(cluster, ADD), snapshot(cluster)
    cluster.objects[Kind.ROLLOUTS, "web"]["metadata"]["finalizers"] = ["others/finalizer"]
    outcome = await executor(cluster, told, lambda _s, _n: plan).run(before, plan)
    assert cluster.calls == []
    assert outcome.moved


@pytest.mark.parametrize(("parked", "done"), [(True, "unmanage and unpause"), (False, "unmanage")])
async def test_only_a_pause_of_ours_is_taken_away(
    cluster: FakeCluster, told: Told, *, parked: bool, done: str
) -> None:
    deployment = cluster.objects[Kind.DEPLOYMENTS, "web"]
    deployment["spec"]["paused"] = True
    if parked:
        deployment["metadata"]["annotations"] = {"accelerator-rollout.dev/parked": "step-taken"}
    await carry_out(cluster, told, plan_of(cluster, UNMANAGE))
    assert cluster.calls == [done, STATUS]


@pytest.mark.parametrize(("by_policy", "source"), [(True, GateSource.POLICY), (False, GateSource.NONE)])
async def test_a_pod_by_dry_run_tells_where_gates_come_from(
    cluster: FakeCluster, told: Told, *, by_policy: bool, source: GateSource
) -> None:
    cluster.gated_by_policy = by_policy
    workload = snapshot(cluster).workload
    assert workload is not None
    outcome = await carry_out(cluster, told, plan_of(cluster, ProbeGate(workload.template.digest)))
    assert outcome.probe.source is source
    assert outcome.again


async def test_checks_of_a_successor_that_are_not_true_are_counted_in_a_row(
    cluster: FakeCluster, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[tuple[str, ...]] = [("no",), ("no",), (), ("no",)]

    async def asked(*_: Any) -> tuple[str, ...]:
        return said.pop(0)

    monkeypatch.setattr(executor_module, "run_health_checks", asked)
    plan = plan_of(cluster, CheckHealth("web-1", "uid-web-1"))
    counts, known = [], snapshot(cluster)
    while said:
        outcome = await executor(cluster, told, lambda _snapshot, _now: plan).run(known, plan)
        assert outcome.again
        known = replace(snapshot(cluster), health=outcome.health)
        counts.append(outcome.health["uid-web-1"].in_a_row)
    assert counts == [1, 2, 0, 1]


async def test_a_template_that_changed_meanwhile_tells_nothing(cluster: FakeCluster, told: Told) -> None:
    outcome = await carry_out(cluster, told, plan_of(cluster, ProbeGate("another")))
    assert cluster.calls == []
    assert outcome.probe is None
    assert outcome.moved


async def test_a_pod_is_pinned_in_the_write_that_opens_its_gate(cluster: FakeCluster, told: Told) -> None:
    await carry_out(cluster, told, plan_of(cluster, replace(OPEN_A, hostname="node-7")))
    assert cluster.calls == ["open a on node-7", STATUS]


async def test_a_hold_is_put_on_and_taken_off_the_claim_that_was_decided_on(
    cluster: FakeCluster, told: Told
) -> None:
    cluster.put(Kind.CLAIMS, o.claim("c", pod_uid="uid-a", device="lpu-0"))
    plan = plan_of(cluster, HoldClaim("c", "uid-c"))
    seen = replace(snapshot(cluster), claims={"c": parse_claim(cluster.objects[Kind.CLAIMS, "c"])})
    outcome = await executor(cluster, told, lambda _s, _n: plan).run(seen, plan)
    assert outcome.held == ("uid-c",)
    plan = plan_of(cluster, EndHold("c", "uid-c", deallocate=True))
    seen = replace(snapshot(cluster), claims={"c": parse_claim(cluster.objects[Kind.CLAIMS, "c"])})
    await executor(cluster, told, lambda _s, _n: plan).run(seen, plan)
    assert [c for c in cluster.calls if c != STATUS] == ["hold c", "end hold of c, deallocating"]


async def test_a_claim_of_the_same_name_is_not_held(cluster: FakeCluster, told: Told) -> None:
    cluster.put(Kind.CLAIMS, o.claim("c", pod_uid="uid-a", device="lpu-0", uid="another"))
    plan = plan_of(cluster, HoldClaim("c", "uid-c"))
    seen = replace(snapshot(cluster), claims={"c": parse_claim(cluster.objects[Kind.CLAIMS, "c"])})
    outcome = await executor(cluster, told, lambda _s, _n: plan).run(seen, plan)
    assert cluster.calls == []
    assert outcome.moved


async def test_every_response_and_every_fresh_read_reaches_the_store(
    cluster: FakeCluster, told: Told
) -> None:
    heard: list[tuple[Kind, str]] = []

    def watched(kind: Kind, raw: Mapping[str, Any]) -> None:
        heard.append((kind, raw["metadata"]["name"]))

    plan = plan_of(cluster, OPEN_A)
    await executor(cluster, told, lambda _s, _n: plan, watched).run(snapshot(cluster), plan)
    assert heard == [
        (Kind.PODS, "a"),
        (Kind.DEPLOYMENTS, "web"),
        (Kind.PODS, "a"),
        (Kind.ROLLOUTS, "web"),
    ]


async def test_events_tell_only_what_was_stored(cluster: FakeCluster, told: Told) -> None:
    notice = Notice(EventType.NORMAL, "Replacing", "replacing pod web-1", "Replace")
    plan = plan_of(cluster, EVICT, notices=(notice,))
    await carry_out(cluster, told, plan, again=plan_of(cluster))
    assert cluster.calls == []
    await carry_out(cluster, told, plan)
    assert cluster.calls == ["evict web-1", STATUS, "event Replacing"]


NEWS_OF = {"ready_replicas": 1}


def with_news(cluster: FakeCluster, *actions: Action, **more: Any) -> Plan:
    plan = plan_of(cluster, *actions, **more)
    return replace(plan, status=plan.status.model_copy(update=NEWS_OF))


async def patiently(cluster: FakeCluster, told: Told, plan: Plan, **known: Any) -> Outcome:
    """Carry out the plan after others whose status is not stored."""
    found = snapshot(cluster)
    backlog = Backlog(found.rollout.status, **known)
    return await executor(cluster, told, lambda *_: plan).run(found, plan, backlog)


async def test_news_are_stored_when_their_time_has_come(cluster: FakeCluster, told: Told) -> None:
    outcome = await patiently(cluster, told, with_news(cluster))
    assert (cluster.calls, outcome.stored, outcome.patience, outcome.untold) == ([], False, NEWS, NEWS)
    outcome = await patiently(cluster, told, with_news(cluster), patience=NEWS, left=0.2)
    assert (cluster.calls, outcome.untold) == ([], 0.2)
    outcome = await patiently(cluster, told, with_news(cluster), patience=NEWS, left=-0.01)
    assert (cluster.calls, outcome.stored, outcome.untold) == ([STATUS], True, 0)


async def test_news_of_another_kind_have_their_own_time_but_not_for_ever(
    cluster: FakeCluster, told: Told
) -> None:
    outcome = await patiently(cluster, told, with_news(cluster), patience=PROOF, left=-0.01)
    assert outcome.untold == NEWS
    outcome = await patiently(cluster, told, with_news(cluster), patience=PROOF, left=-0.01, at_most=-0.01)
    assert outcome.stored


async def test_a_choice_is_stored_before_anything_is_touched_however_patient_the_rest(
    cluster: FakeCluster, told: Told
) -> None:
    await patiently(cluster, told, with_news(cluster, EVICT, record_first=True), patience=NEWS, left=0.4)
    assert cluster.calls == [STATUS, "evict web-1"]


# A former template


def restoring(cluster: FakeCluster, **more: Any) -> RestoreTemplate:
    """The undo of the Deployment's template in favour of a ReplicaSet's."""
    former = o.replica_set("web-1", image="v0")
    former["spec"]["template"]["spec"]["fieldOfTomorrow"] = "kept"
    cluster.put(Kind.REPLICA_SETS, former)
    digest = project.replica_set(former).template_digest
    facts = {
        "name": "web",
        "uid": "uid-web",
        "revision_name": "web-1",
        "revision_uid": former["metadata"]["uid"],
        "leaves": "whatever the plan says",
        "restores": digest,
    }
    return RestoreTemplate(**(facts | more))


async def test_a_former_template_is_written_as_it_is_kept_and_parks(cluster: FakeCluster, told: Told) -> None:
    action = restoring(cluster)
    outcome = await carry_out(cluster, told, plan_of(cluster, action, record_first=True))
    assert cluster.calls == [STATUS, "write_template deployments web template-changed"]
    assert not outcome.moved
    written = cluster.objects[Kind.DEPLOYMENTS, "web"]["spec"]["template"]
    assert written["spec"]["fieldOfTomorrow"] == "kept"
    assert written["metadata"]["labels"] == {"app": "web"}


async def test_a_persons_pause_stays_theirs(cluster: FakeCluster, told: Told) -> None:
    cluster.objects[Kind.DEPLOYMENTS, "web"]["spec"]["paused"] = True
    await carry_out(cluster, told, plan_of(cluster, restoring(cluster)))
    assert "write_template deployments web " in cluster.calls


@pytest.mark.parametrize(
    "wrong", [{"revision_uid": "another"}, {"restores": "another"}, {"revision_name": "x"}]
)
async def test_another_template_than_was_decided_on_is_not_written(
    cluster: FakeCluster, told: Told, wrong: dict[str, str]
) -> None:
    outcome = await carry_out(cluster, told, plan_of(cluster, restoring(cluster, **wrong)))
    assert cluster.calls == []
    assert outcome.moved
