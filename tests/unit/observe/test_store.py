"""The store knows the newest state of everything, wakes whom a change concerns, and remembers who went."""

import time
from typing import Any

import pytest

from accelerator_rollout.api.models import Unreadable
from accelerator_rollout.decide.snapshot import Freshness, Snapshot
from accelerator_rollout.observe.departures import Departures
from accelerator_rollout.observe.kinds import Kind
from accelerator_rollout.observe.store import Store
from accelerator_rollout.records import Device, PodRecord

from . import objects as o
from .conftest import Clock

WEB = ("team", "web")
LPU_0 = Device(o.DRIVER, "node-1", "lpu-0")


def add(store: Store, kind: Kind, *raws: dict[str, Any]) -> set[tuple[str, str]]:
    woken: set[tuple[str, str]] = set()
    for raw in raws:
        woken |= store.apply(kind, "ADDED", raw)
    return woken


def changed(raw: dict[str, Any], **status: Any) -> dict[str, Any]:
    """A later state of the object, its status changed."""
    metadata = raw["metadata"] | {"resourceVersion": o.next_version()}
    return raw | {"metadata": metadata, "status": raw["status"] | status}


def delete(store: Store, kind: Kind, raw: dict[str, Any]) -> frozenset[tuple[str, str]]:
    return store.apply(kind, "DELETED", changed(raw))


def snapshot(store: Store, key: tuple[str, str] = WEB) -> Snapshot:
    found = store.snapshot(key, store.now())
    assert isinstance(found, Snapshot)
    return found


@pytest.fixture
def web(store: Store, clock: Clock) -> Store:
    """A store with the workload `web`: two pods, each with a claim on a device, and an AcceleratorRollout."""
    for kind in Kind:
        store.watched_from(kind, clock.now)
    add(store, Kind.ROLLOUTS, o.rollout())
    add(store, Kind.DEPLOYMENTS, o.deployment())
    add(store, Kind.REPLICA_SETS, o.replica_set())
    add(store, Kind.PODS, o.pod("a", claims={"lpu": "ca"}), o.pod("b", claims={"lpu": "cb"}))
    add(
        store,
        Kind.CLAIMS,
        o.claim("ca", pod_uid="uid-a", device="lpu-0"),
        o.claim("cb", pod_uid="uid-b", device="lpu-1"),
    )
    add(store, Kind.SLICES, o.resource_slice("s", devices=("lpu-0", "lpu-1")))
    add(store, Kind.NODES, o.node("node-1"))
    clock.pass_seconds(1)
    store.believe(clock.now.replace(year=2030))
    return store


class TestStates:
    def test_an_older_state_changes_nothing(self, store: Store) -> None:
        new = o.pod("a", phase="Failed", version="20")
        add(store, Kind.PODS, new, o.pod("a", phase="Running", version="9"))
        assert store.pods.get("uid-a").phase == "Failed"  # type: ignore[union-attr]

    def test_versions_are_numbers_not_strings(self, store: Store) -> None:
        add(store, Kind.PODS, o.pod("a", version="99"), o.pod("a", phase="Failed", version="100"))
        assert store.pods.get("uid-a").phase == "Failed"  # type: ignore[union-attr]

    def test_what_is_gone_does_not_come_back(self, store: Store) -> None:
        raw = o.pod("a")
        add(store, Kind.PODS, raw)
        delete(store, Kind.PODS, raw)
        add(store, Kind.PODS, changed(raw, phase="Running"))
        assert len(store.pods) == 0

    def test_the_deletion_of_a_predecessor_leaves_its_successor_of_the_same_name(self, store: Store) -> None:
        old, new = o.pod("db-0", uid="old", version="5"), o.pod("db-0", uid="new", version="7")
        add(store, Kind.PODS, old, new)
        assert store.pods.named("team", "db-0").uid == "new"  # type: ignore[union-attr]
        store.apply(Kind.PODS, "DELETED", old)
        assert store.pods.named("team", "db-0").uid == "new"  # type: ignore[union-attr]

    def test_a_recreated_rollout_seen_before_its_predecessors_deletion_stays(self, store: Store) -> None:
        old = o.rollout()
        new = o.rollout()
        new["metadata"]["uid"] = "another"
        add(store, Kind.ROLLOUTS, old, new)
        store.apply(Kind.ROLLOUTS, "DELETED", old)
        assert store.rollout(WEB).uid == "another"  # type: ignore[union-attr]
        assert add(store, Kind.DEPLOYMENTS, o.deployment()) == {WEB}


class TestWaking:
    def test_a_change_wakes_the_rollout_of_the_workload_and_no_other(self, web: Store) -> None:
        add(web, Kind.ROLLOUTS, o.rollout("db", kind="StatefulSet", workload="db"))
        assert add(web, Kind.PODS, o.pod("c")) == {WEB}
        assert add(web, Kind.DEPLOYMENTS, o.deployment(replicas=3)) == {WEB}
        assert add(web, Kind.REPLICA_SETS, o.replica_set(image="v3")) == {WEB}
        assert add(web, Kind.STATEFUL_SETS, o.stateful_set()) == {("team", "db")}

    def test_a_workload_of_the_same_name_elsewhere_wakes_nobody(self, web: Store) -> None:
        assert add(web, Kind.DEPLOYMENTS, o.deployment(namespace="other", uid="x")) == set()
        assert add(web, Kind.STATEFUL_SETS, o.stateful_set("web", uid="y")) == set()

    def test_a_change_that_no_record_shows_wakes_nobody(self, web: Store) -> None:
        assert (
            add(web, Kind.DEPLOYMENTS, o.deployment(annotations={"deployment.kubernetes.io/revision": "2"}))
            == set()
        )

    def test_the_pod_seen_before_its_replica_set_counts_once_both_are_there(self, web: Store) -> None:
        pod = o.pod("z", owner=("ReplicaSet", "web-2", "uid-web-2"))
        assert add(web, Kind.PODS, pod) == set()
        assert add(web, Kind.REPLICA_SETS, o.replica_set("web-2")) == {WEB}
        assert "z" in {p.name for p in snapshot(web).pods}

    def test_a_claim_wakes_the_rollout_of_its_pod(self, web: Store) -> None:
        assert add(web, Kind.CLAIMS, o.claim("ca", pod_uid="uid-a")) == {WEB}

    def test_a_stranger_on_our_pods_device_wakes_us(self, web: Store) -> None:
        stranger = o.claim("theirs", namespace="other", pod_uid="uid-x", device="lpu-0")
        assert add(web, Kind.CLAIMS, stranger) == {WEB}
        assert delete(web, Kind.CLAIMS, stranger) == {WEB}

    def test_a_stranger_on_another_device_wakes_nobody(self, web: Store) -> None:
        assert (
            add(web, Kind.CLAIMS, o.claim("t", namespace="other", pod_uid="uid-x", device="lpu-7")) == set()
        )

    def test_what_a_replacement_in_flight_waits_for_wakes_its_rollout(self, store: Store) -> None:
        status = {"replacements": [o.replacement("old", claim_name="c-old", device="lpu-0")]}
        add(store, Kind.ROLLOUTS, o.rollout(status=status), o.rollout("idle", workload="idle"))
        assert add(store, Kind.SLICES, o.resource_slice("s")) == {WEB}
        assert add(store, Kind.NODES, o.node("node-1", boot="boot-2")) == {WEB}
        assert add(store, Kind.TAINT_RULES, o.taint_rule("t", selector={"device": "lpu-0"})) == {WEB}
        assert add(store, Kind.TAINT_RULES, o.taint_rule("u", selector={"device": "lpu-9"})) == set()
        assert add(store, Kind.CLAIMS, o.claim("c-old")) == {WEB}
        assert add(store, Kind.CLAIMS, o.claim("x", namespace="other", pod_uid="u", device="lpu-0")) == {WEB}
        assert add(store, Kind.PODS, o.pod("old", owner=None)) == {WEB}
        assert add(store, Kind.SLICES, o.resource_slice("t", pool="node-2")) == set()
        assert add(store, Kind.NODES, o.node("node-2")) == set()

    def test_the_node_of_a_running_pod_wakes_its_rollout_if_it_changes(self, web: Store) -> None:
        """A node that is uncordoned lets the next replacement start; a heartbeat says nothing."""
        cordoned = o.node("node-1") | {"spec": {"unschedulable": True}}
        assert add(web, Kind.NODES, cordoned) == {WEB}
        assert add(web, Kind.NODES, o.node("node-1")) == {WEB}
        assert add(web, Kind.NODES, o.node("node-1")) == set()

    def test_the_pool_of_a_running_pod_wakes_its_rollout(self, web: Store) -> None:
        """A driver that is back lets the next replacement start."""
        add(web, Kind.CLAIMS, o.claim("ca", pod_uid="uid-a", device="lpu-0"))
        assert add(web, Kind.SLICES, o.resource_slice("s")) == {WEB}
        assert add(web, Kind.SLICES, o.resource_slice("t", pool="node-2")) == set()

    def test_a_replacement_that_is_done_wakes_no_more(self, store: Store) -> None:
        status = {"replacements": [o.replacement("old", claim_name="c-old", device="lpu-0")]}
        add(store, Kind.ROLLOUTS, o.rollout(status=status))
        add(store, Kind.ROLLOUTS, o.rollout())
        assert add(store, Kind.SLICES, o.resource_slice("s")) == set()

    def test_a_budget_wakes_its_namespace(self, web: Store) -> None:
        assert add(web, Kind.BUDGETS, o.budget(selector={})) == {WEB}
        assert add(web, Kind.BUDGETS, o.budget("x", selector={}, namespace="other")) == set()

    def test_rivals_wake_each_other(self, web: Store) -> None:
        assert add(web, Kind.ROLLOUTS, o.rollout("rival")) == {WEB, ("team", "rival")}
        assert delete(web, Kind.ROLLOUTS, o.rollout("rival")) == {WEB, ("team", "rival")}

    def test_nobody_is_woken_for_a_namespace_that_is_not_ours(self, clock: Clock) -> None:
        store = Store(now=clock, namespaces=["mine"])
        assert add(store, Kind.ROLLOUTS, o.rollout()) == set()
        assert store.snapshot(WEB, clock.now) is None
        assert store.cares_for(Kind.PODS, "team")
        assert not store.cares_for(Kind.ROLLOUTS, "team")


class TestSnapshots:
    def test_holds_the_workload_and_all_it_touches(self, web: Store) -> None:
        add(web, Kind.BUDGETS, o.budget(selector={"matchLabels": {"app": "web"}}))
        add(web, Kind.BUDGETS, o.budget("other", selector={"matchLabels": {"app": "db"}}))
        add(web, Kind.PODS, o.pod("foreign", owner=("ReplicaSet", "x", "uid-x")))
        add(web, Kind.CLAIMS, o.claim("theirs", namespace="other", pod_uid="uid-x", device="lpu-0"))
        found = snapshot(web)
        assert found.workload is not None
        assert found.workload.name == "web"
        assert [r.name for r in found.replica_sets] == ["web-1"]
        assert {p.name for p in found.pods} == {"a", "b"}
        assert set(found.claims) == {"ca", "cb"}
        assert {c.name for c in found.holders[LPU_0]} == {"ca", "theirs"}
        assert [s.name for s in found.slices] == ["s"]
        assert set(found.nodes) == {"node-1"}
        assert [b.name for b in found.budgets] == ["web"]
        assert found.freshness is Freshness.FRESH
        assert found.unreadable == {}

    def test_pods_of_other_managed_workloads_on_our_pools_are_peers(self, web: Store) -> None:
        owner = ("StatefulSet", "db", "uid-db")
        pod = o.pod("db-0", owner=owner, claims={"lpu": "cdb"})
        claim = o.claim("cdb", pod_uid="uid-db-0", device="lpu-7")
        add(web, Kind.STATEFUL_SETS, o.stateful_set())
        add(web, Kind.PODS, pod)
        add(web, Kind.CLAIMS, claim)
        assert snapshot(web).peers == frozenset(), "no AcceleratorRollout speaks for it"
        add(web, Kind.ROLLOUTS, o.rollout("db", kind="StatefulSet", workload="db"))
        add(web, Kind.PODS, pod)
        assert snapshot(web).peers == {pod["metadata"]["uid"]}
        assert snapshot(web, ("team", "db")).peers == {p.uid for p in snapshot(web).pods if p.claim_names}

    def test_a_rollout_without_a_workload_has_an_empty_snapshot(self, store: Store) -> None:
        add(store, Kind.ROLLOUTS, o.rollout())
        found = snapshot(store)
        assert found.workload is None
        assert found.pods == ()
        assert found.freshness is Freshness.SYNCING

    def test_nothing_is_known_of_a_rollout_that_does_not_exist(self, store: Store, clock: Clock) -> None:
        assert store.snapshot(WEB, clock.now) is None

    def test_a_rollout_that_cannot_be_read_is_returned_as_such(self, store: Store, clock: Clock) -> None:
        newer = o.rollout()
        newer["spec"]["telepathy"] = True
        assert add(store, Kind.ROLLOUTS, newer) == {WEB}
        assert isinstance(store.snapshot(WEB, clock.now), Unreadable)
        assert store.unreadable_counts()[Kind.ROLLOUTS] == 1

    def test_pods_of_a_stateful_set_belong_by_uid_not_by_name(self, store: Store) -> None:
        key = ("team", "db")
        add(store, Kind.ROLLOUTS, o.rollout("db", kind="StatefulSet", workload="db"))
        add(store, Kind.STATEFUL_SETS, o.stateful_set())
        add(store, Kind.PODS, o.pod("db-0", owner=("StatefulSet", "db", "uid-db")))
        add(store, Kind.PODS, o.pod("db-1", owner=("StatefulSet", "db", "uid-of-a-former-db")))
        assert [p.name for p in snapshot(store, key).pods] == ["db-0"]

    def test_pods_and_revisions_of_a_daemon_set_belong_to_it(self, store: Store) -> None:
        key = ("team", "ds")
        add(store, Kind.ROLLOUTS, o.rollout("ds", kind="DaemonSet", workload="ds"))
        assert add(store, Kind.DAEMON_SETS, o.daemon_set()) == {key}
        assert add(store, Kind.REVISIONS, o.controller_revision()) == {key}
        assert add(store, Kind.PODS, o.pod("ds-a", owner=("DaemonSet", "ds", "uid-ds"))) == {key}
        add(store, Kind.PODS, o.pod("ds-b", owner=("DaemonSet", "ds", "uid-of-a-former-ds")))
        found = snapshot(store, key)
        assert [p.name for p in found.pods] == ["ds-a"]
        assert [r.name for r in found.revisions] == ["ds-1"]

    def test_a_pod_outlives_its_replica_set(self, web: Store) -> None:
        delete(web, Kind.REPLICA_SETS, o.replica_set())
        found = snapshot(web)
        assert found.replica_sets == ()
        assert {p.name for p in found.pods} == {"a", "b"}
        delete(web, Kind.PODS, o.pod("a", claims={"lpu": "ca"}))
        assert [v.pod.name for v in snapshot(web).vanished] == ["a"]

    def test_devices_of_a_replacement_in_flight_are_looked_up_after_its_claim_is_gone(
        self, web: Store
    ) -> None:
        status = {
            "replacements": [o.replacement("old", claim_name="c-old", device="lpu-9", node_name="node-9")]
        }
        add(web, Kind.ROLLOUTS, o.rollout(status=status))
        add(web, Kind.NODES, o.node("node-9"))
        theirs = o.claim("theirs", namespace="other", pod_uid="uid-x", device="lpu-9")
        add(web, Kind.CLAIMS, theirs)
        found = snapshot(web)
        assert {c.name for c in found.holders[Device(o.DRIVER, "node-1", "lpu-9")]} == {"theirs"}
        assert "c-old" not in found.claims
        assert "node-9" in found.nodes

    def test_a_free_device_of_interest_has_no_holder_but_an_entry(self, web: Store) -> None:
        status = {"replacements": [o.replacement("old", claim_name="c-old", device="lpu-9")]}
        add(web, Kind.ROLLOUTS, o.rollout(status=status))
        assert snapshot(web).holders[Device(o.DRIVER, "node-1", "lpu-9")] == ()

    def test_claims_are_those_of_our_own_namespace(self, web: Store) -> None:
        add(web, Kind.CLAIMS, o.claim("ca", namespace="other", uid="theirs", pod_uid="u", device="lpu-5"))
        assert snapshot(web).claims["ca"].uid == "uid-ca"

    def test_only_taint_rules_that_match_our_devices_are_shown(self, web: Store) -> None:
        add(
            web,
            Kind.TAINT_RULES,
            o.taint_rule("all", selector={}),
            o.taint_rule("p", selector={"pool": "node-8"}),
        )
        assert [r.name for r in snapshot(web).taint_rules] == ["all"]

    def test_all_generations_of_a_pool_are_shown(self, web: Store) -> None:
        newer = o.resource_slice("t")
        newer["spec"]["pool"]["generation"] = 2
        add(web, Kind.SLICES, newer)
        assert {s.generation for s in snapshot(web).slices} == {1, 2}

    def test_rivals_are_named_also_when_they_cannot_be_read(self, web: Store) -> None:
        newer = o.rollout("newer")
        newer["spec"]["telepathy"] = True
        add(web, Kind.ROLLOUTS, o.rollout("rival"), newer, o.rollout("db", workload="db"))
        assert {r.name for r in snapshot(web).rivals} == {"rival", "newer"}

    def test_a_budget_that_selects_only_the_old_revisions_labels_counts(self, web: Store) -> None:
        old = o.replica_set("web-0", uid="uid-web-0")
        old["spec"]["template"]["metadata"]["labels"]["tier"] = "old"
        add(web, Kind.REPLICA_SETS, old)
        add(web, Kind.BUDGETS, o.budget(selector={"matchLabels": {"tier": "old"}}))
        assert [b.name for b in snapshot(web).budgets] == ["web"]

    def test_the_work_does_not_grow_with_what_is_unrelated(self, web: Store) -> None:
        def seconds() -> float:
            began = time.perf_counter()
            for _ in range(50):
                snapshot(web)
            return time.perf_counter() - began

        before = min(seconds() for _ in range(3))
        for i in range(5000):
            claim = o.claim(f"c{i}", namespace="other", pod_uid=f"u{i}", device=f"lpu-{i}", pool="p")
            add(web, Kind.CLAIMS, claim)
            add(web, Kind.PODS, o.pod(f"p{i}", namespace="other", owner=("Job", "j", "uid-j")))
        assert min(seconds() for _ in range(3)) < 3 * before + 0.01


class TestDepartures:
    def test_a_pod_that_went_is_remembered_until_it_is_forgotten(self, web: Store, clock: Clock) -> None:
        assert delete(web, Kind.PODS, o.pod("a", claims={"lpu": "ca"})) == {WEB}
        found = snapshot(web)
        assert [(v.pod.name, v.at) for v in found.vanished] == [("a", clock.now)]
        assert [p.name for p in found.pods] == ["b"]
        assert "ca" in found.claims
        assert LPU_0 in found.holders
        web.forget("uid-a")
        assert snapshot(web).vanished == ()

    def test_the_deletion_event_brings_the_last_state(self, web: Store) -> None:
        web.apply(Kind.PODS, "DELETED", o.ended_by("kubelet", o.pod("a")))
        assert snapshot(web).vanished[0].pod.kubelet_terminal

    def test_a_proof_seen_before_the_deletion_stays(self, web: Store) -> None:
        add(web, Kind.PODS, o.ended_by("kubelet", o.pod("a")))
        web.apply(Kind.PODS, "DELETED", o.pod("a", phase="Running"))
        assert snapshot(web).vanished[0].pod.kubelet_terminal

    def test_a_pod_first_seen_as_it_went_counts_too(self, web: Store) -> None:
        assert web.apply(Kind.PODS, "DELETED", o.pod("c")) == {WEB}
        assert [v.pod.name for v in snapshot(web).vanished] == ["c"]

    def test_pods_of_a_workload_that_nobody_references_are_not_kept(self, web: Store) -> None:
        delete(web, Kind.ROLLOUTS, o.rollout())
        delete(web, Kind.PODS, o.pod("a"))
        assert len(web.departures) == 0

    def test_departures_go_with_the_last_reference(self, web: Store) -> None:
        delete(web, Kind.PODS, o.pod("a"))
        add(web, Kind.ROLLOUTS, o.rollout("rival"))
        delete(web, Kind.ROLLOUTS, o.rollout())
        assert len(web.departures) == 1
        delete(web, Kind.ROLLOUTS, o.rollout("rival"))
        assert len(web.departures) == 0

    def test_a_namespace_with_an_illegible_reference_keeps_all(self, web: Store) -> None:
        broken = o.rollout("broken")
        broken["spec"] = {}
        add(web, Kind.ROLLOUTS, broken)
        delete(web, Kind.ROLLOUTS, o.rollout())
        delete(web, Kind.PODS, o.pod("a"))
        assert len(web.departures) == 1

    def test_departures_of_a_deleted_workload_are_shown_to_its_successor(self, web: Store) -> None:
        delete(web, Kind.DEPLOYMENTS, o.deployment())
        add(web, Kind.DEPLOYMENTS, o.deployment(uid="uid-web-again"))
        delete(web, Kind.PODS, o.pod("a"))
        found = snapshot(web)
        assert found.pods == ()
        assert [v.pod.name for v in found.vanished] == ["a"]

    def test_a_swept_pod_is_remembered_and_its_late_event_adds_the_proof(self, web: Store) -> None:
        woken, removed = web.sweep(Kind.PODS, {"uid-b"}, int(o.next_version()))
        assert set(woken) == {WEB}
        assert removed == 1
        assert not snapshot(web).vanished[0].pod.kubelet_terminal
        assert web.apply(Kind.PODS, "DELETED", o.ended_by("kubelet", o.pod("a"))) == {WEB}
        assert snapshot(web).vanished[0].pod.kubelet_terminal

    def test_a_day_later_it_is_forgotten_and_we_say_that_we_know_less(self, web: Store, clock: Clock) -> None:
        delete(web, Kind.PODS, o.pod("a"))
        clock.pass_seconds(24 * 3600 + 1)
        found = snapshot(web)
        assert found.vanished == ()
        assert found.watched_since == clock.now

    def test_their_number_is_bounded_and_we_say_that_we_know_less(self, clock: Clock) -> None:
        store = Store(now=clock, departures=Departures(at_most=2))
        for kind in Kind:
            store.watched_from(kind, clock.now)
        add(store, Kind.ROLLOUTS, o.rollout())
        add(store, Kind.DEPLOYMENTS, o.deployment())
        add(store, Kind.REPLICA_SETS, o.replica_set())
        clock.pass_seconds(5)
        for name in ("a", "b", "c"):
            store.apply(Kind.PODS, "DELETED", o.pod(name))
        found = snapshot(store)
        assert [v.pod.name for v in found.vanished] == ["b", "c"]
        assert found.watched_since == clock.now


class TestWatchedSince:
    def test_unknown_until_every_kind_is_watched(self, store: Store, clock: Clock) -> None:
        add(store, Kind.ROLLOUTS, o.rollout())
        assert snapshot(store).watched_since is None
        for kind in (Kind.PODS, Kind.REPLICA_SETS, Kind.DEPLOYMENTS):
            store.watched_from(kind, clock.now)
        assert snapshot(store).watched_since is None

    def test_counts_from_the_reference_as_nobody_kept_departures_before(
        self, web: Store, clock: Clock
    ) -> None:
        clock.pass_seconds(60)
        add(web, Kind.ROLLOUTS, o.rollout("db", kind="StatefulSet", workload="db"))
        assert snapshot(web, ("team", "db")).watched_since == clock.now

    def test_starts_anew_after_a_gap(self, web: Store, clock: Clock) -> None:
        before = snapshot(web).watched_since
        clock.pass_seconds(60)
        web.missed(Kind.CLAIMS)  # tells nothing about which pods there were
        assert snapshot(web).watched_since == before
        web.missed(Kind.PODS)
        assert snapshot(web).watched_since == clock.now


class TestSweeping:
    def test_what_is_younger_than_the_list_stays(self, web: Store) -> None:
        moment = int(o.next_version())
        add(web, Kind.PODS, o.pod("young"))
        _, removed = web.sweep(Kind.PODS, set(), moment)
        assert removed == 2
        assert [p.name for p in web.pods] == ["young"]

    def test_what_is_listed_stays_however_old(self, web: Store) -> None:
        assert web.sweep(Kind.PODS, {"uid-a", "uid-b"}, 10**9) == (frozenset(), 0)


class TestFreshness:
    def test_runs_out_by_itself(self, store: Store, clock: Clock) -> None:
        assert store.freshness(clock.now) is Freshness.SYNCING
        store.doubt()
        assert store.freshness(clock.now) is Freshness.SYNCING
        store.believe(clock.now)
        assert store.freshness(clock.now) is Freshness.FRESH
        clock.pass_seconds(1)
        assert store.freshness(clock.now) is Freshness.STALE

    def test_a_doubt_ends_it_at_once(self, web: Store) -> None:
        web.doubt()
        assert snapshot(web).freshness is Freshness.STALE


class TestUnreadable:
    def broken(self, raw: dict[str, Any]) -> dict[str, Any]:
        raw["metadata"]["finalizers"] = 7
        return raw

    def test_a_pod_that_cannot_be_read_is_reported_and_the_others_go_on(self, web: Store) -> None:
        assert add(web, Kind.PODS, o.pod("a", status={"conditions": 7})) == {WEB}
        found = snapshot(web)
        assert found.freshness is Freshness.UNREADABLE
        assert set(found.unreadable) == {"Pod/a"}
        assert "conditions" in found.unreadable["Pod/a"]
        assert [p.name for p in found.pods] == ["b"]
        assert web.unreadable_counts()[Kind.PODS] == 1

    def test_it_concerns_nobody_else(self, web: Store) -> None:
        add(web, Kind.PODS, o.pod("x", owner=("ReplicaSet", "x", "uid-x"), status={"conditions": 7}))
        add(web, Kind.NODES, o.node("node-8", labels=7) | {"spec": 7})
        add(web, Kind.CLAIMS, self.broken(o.claim("c", namespace="other", pod_uid="u", device="lpu-8")))
        assert snapshot(web).unreadable == {}

    def test_it_is_read_again_once_it_is_legible(self, web: Store) -> None:
        add(web, Kind.PODS, o.pod("a", status={"conditions": 7}))
        add(web, Kind.PODS, o.pod("a"))
        assert snapshot(web).unreadable == {}
        assert {p.name for p in snapshot(web).pods} == {"a", "b"}

    def test_its_last_legible_state_serves_as_its_obituary(self, web: Store) -> None:
        add(web, Kind.PODS, o.pod("a", status={"conditions": 7}))
        web.apply(Kind.PODS, "DELETED", o.pod("a", status={"conditions": 7}))
        assert [v.pod.name for v in snapshot(web).vanished] == ["a"]

    def test_a_pod_that_went_without_ever_being_legible_is_a_gap(self, web: Store, clock: Clock) -> None:
        add(web, Kind.PODS, o.pod("z", status={"conditions": 7}))
        clock.pass_seconds(5)
        assert web.apply(Kind.PODS, "DELETED", o.pod("z", status={"conditions": 7})) == {WEB}
        assert snapshot(web).watched_since == clock.now

    def test_a_strangers_claim_that_may_hold_our_device_is_reported_without_its_name(
        self, web: Store
    ) -> None:
        add(web, Kind.CLAIMS, self.broken(o.claim("secret", namespace="other", pod_uid="u", device="lpu-0")))
        found = snapshot(web)
        assert list(found.unreadable) == ["ResourceClaim of another namespace"]
        assert "secret" not in repr(found.unreadable)
        assert "other/" not in repr(found.unreadable)

    def test_a_claim_whose_allocation_is_illegible_may_hold_anything(self, web: Store) -> None:
        add(web, Kind.CLAIMS, o.claim("c", namespace="other", uid="u") | {"status": {"allocation": [1]}})
        assert snapshot(web).freshness is Freshness.UNREADABLE

    def test_an_illegible_slice_concerns_its_pool(self, web: Store) -> None:
        mine, other = o.resource_slice("x"), o.resource_slice("y", pool="node-2")
        add(web, Kind.SLICES, self.no_devices(other))
        assert snapshot(web).unreadable == {}
        add(web, Kind.SLICES, self.no_devices(mine))
        assert set(snapshot(web).unreadable) == {"ResourceSlice/x"}

    def no_devices(self, raw: dict[str, Any]) -> dict[str, Any]:
        raw["spec"]["devices"] = 7
        return raw

    def test_an_illegible_workload_is_named(self, web: Store) -> None:
        broken = o.deployment()
        broken["spec"]["replicas"] = "two"
        assert add(web, Kind.DEPLOYMENTS, broken) == {WEB}
        found = snapshot(web)
        assert found.workload is None
        assert set(found.unreadable) == {"Deployment/web"}

    def test_what_has_no_uid_is_kept_by_name(self, web: Store) -> None:
        nameless = o.pod("a")
        del nameless["metadata"]["uid"]
        add(web, Kind.PODS, nameless)
        assert set(snapshot(web).unreadable) == {"Pod/a"}


class TestStrays:
    def later(self, store: Store, clock: Clock) -> list[PodRecord]:
        store.strays()
        clock.pass_seconds(6)
        return list(store.strays())

    def test_a_gated_pod_that_nobody_references_is_a_stray_after_some_seconds(
        self, web: Store, clock: Clock
    ) -> None:
        add(web, Kind.PODS, o.pod("lonely", owner=None, gated=True))
        assert web.strays() == ()
        clock.pass_seconds(6)
        assert [p.name for p in web.strays()] == ["lonely"]

    def test_a_pod_of_a_referenced_workload_is_none(self, web: Store, clock: Clock) -> None:
        add(web, Kind.PODS, o.pod("c", gated=True))
        assert self.later(web, clock) == []

    def test_once_the_rollout_is_gone_it_is(self, web: Store, clock: Clock) -> None:
        add(web, Kind.PODS, o.pod("c", gated=True))
        delete(web, Kind.ROLLOUTS, o.rollout())
        assert [p.name for p in self.later(web, clock)] == ["c"]

    def test_a_pod_without_our_gate_is_none(self, web: Store, clock: Clock) -> None:
        add(web, Kind.PODS, o.pod("c", owner=None))
        assert self.later(web, clock) == []

    def test_a_pod_whose_owner_we_have_not_seen_is_none(self, web: Store, clock: Clock) -> None:
        add(web, Kind.PODS, o.pod("c", owner=("ReplicaSet", "new", "uid-new"), gated=True))
        add(web, Kind.PODS, o.pod("d", owner=("StatefulSet", "new", "uid-new-too"), gated=True))
        assert self.later(web, clock) == []

    def test_a_rollout_that_comes_in_time_claims_it(self, web: Store, clock: Clock) -> None:
        add(web, Kind.STATEFUL_SETS, o.stateful_set())
        add(web, Kind.PODS, o.pod("db-0", owner=("StatefulSet", "db", "uid-db"), gated=True))
        assert web.strays() == ()
        clock.pass_seconds(1)
        add(web, Kind.ROLLOUTS, o.rollout("db", kind="StatefulSet", workload="db"))
        clock.pass_seconds(6)
        assert web.strays() == ()

    def test_an_unreadable_rollout_stands_for_its_workload(self, web: Store, clock: Clock) -> None:
        newer = o.rollout("js", kind="JobSet", workload="js")
        add(web, Kind.ROLLOUTS, newer)
        add(web, Kind.PODS, o.pod("p", owner=("JobSet", "js", "uid-js"), gated=True))
        add(web, Kind.PODS, o.pod("q", owner=("JobSet", "other", "uid-other"), gated=True))
        assert [p.name for p in self.later(web, clock)] == ["q"]

    def test_an_illegible_one_stands_for_its_whole_namespace(self, web: Store, clock: Clock) -> None:
        broken = o.rollout("broken")
        broken["spec"] = {}
        add(web, Kind.ROLLOUTS, broken)
        add(web, Kind.PODS, o.pod("p", owner=None, gated=True))
        add(web, Kind.PODS, o.pod("q", owner=None, gated=True, namespace="other"))
        assert [p.name for p in self.later(web, clock)] == ["q"]

    def test_an_ended_pod_is_left_alone(self, web: Store, clock: Clock) -> None:
        add(web, Kind.PODS, o.pod("p", owner=None, gated=True, deletionTimestamp="2026-01-31T12:00:00Z"))
        assert self.later(web, clock) == []

    def test_a_store_that_may_be_wrong_knows_no_strays(self, web: Store, clock: Clock) -> None:
        add(web, Kind.PODS, o.pod("lonely", owner=None, gated=True))
        web.strays()
        clock.pass_seconds(6)
        web.doubt()
        assert web.strays() == ()

    def test_those_of_namespaces_that_are_not_ours_are_none(self, clock: Clock) -> None:
        store = Store(now=clock, namespaces=["mine"])
        store.believe(clock.now.replace(year=2030))
        add(store, Kind.PODS, o.pod("p", owner=None, gated=True))
        assert self.later(store, clock) == []
