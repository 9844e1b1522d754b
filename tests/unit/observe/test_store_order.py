"""Whatever the order and repetition in which events arrive, the store ends up with what a LIST would show."""

from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.observe.kinds import Kind
from accelerator_rollout.observe.store import Store

from . import objects as o

Event = tuple[Kind, str, Mapping[str, Any]]

OWNERS = (("ReplicaSet", "web-1", "uid-web-1"), ("ReplicaSet", "web-2", "uid-web-2"), None)


@st.composite
def histories(draw: st.DrawFn) -> list[list[Event]]:
    """Histories of some objects: each a run of states with rising versions, some of them ending in a deletion.

    Names repeat, so that objects are recreated under the names of others.
    """
    version = iter(range(1, 10_000))
    found: list[list[Event]] = []
    # Versions rise with creation, as one of the name must be gone before the next can be created.
    for number in range(draw(st.integers(1, 8))):
        kind = draw(
            st.sampled_from([Kind.PODS, Kind.CLAIMS, Kind.REPLICA_SETS, Kind.DEPLOYMENTS, Kind.ROLLOUTS])
        )
        name = draw(st.sampled_from(["a", "b"]))
        states = draw(st.integers(1, 4))
        history: list[Event] = []
        for step in range(states):
            raw = draw(states_of(kind, name, f"{kind}-{number}", str(next(version))))
            history.append((kind, "ADDED" if step == 0 else "MODIFIED", raw))
        if draw(st.booleans()):
            raw = draw(states_of(kind, name, f"{kind}-{number}", str(next(version))))
            history.append((kind, "DELETED", raw))
        found.append(history)
    return found


@st.composite
def states_of(draw: st.DrawFn, kind: Kind, name: str, uid: str, version: str) -> dict[str, Any]:
    common: dict[str, Any] = {"uid": uid, "version": version}
    match kind:
        case Kind.PODS:
            raw = o.pod(name, owner=draw(st.sampled_from(OWNERS)), gated=draw(st.booleans()), **common)
            if draw(st.integers(0, 5)) == 0:
                raw["status"]["conditions"] = "illegible"
            return raw
        case Kind.CLAIMS:
            return o.claim(
                name, device=draw(st.sampled_from(["lpu-0", "lpu-1", None])), pod_uid="pods-0", **common
            )
        case Kind.REPLICA_SETS:
            return o.replica_set(name, owner_uid=draw(st.sampled_from(["deployments-0", "x"])), **common)
        case Kind.DEPLOYMENTS:
            return o.deployment(name, replicas=draw(st.integers(0, 3)), **common)
        case _:
            raw = o.rollout(name, workload=draw(st.sampled_from(["a", "b"])))
            raw["metadata"] |= {"uid": uid, "resourceVersion": version}
            return raw


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[list[list[Event]], list[Event]]:
    """Histories, and their events as they might arrive: those of one object in order, each maybe repeated."""
    objects = draw(histories())
    waiting = [list(history) for history in objects]
    arrived: list[Event] = []
    while any(waiting):
        left = [history for history in waiting if history]
        event = left[draw(st.integers(0, len(left) - 1))].pop(0)
        arrived += [event] * draw(st.integers(1, 2))
        if draw(st.integers(0, 1)):
            arrived.append(arrived[draw(st.integers(0, len(arrived) - 1))])  # an older event, once more
    return objects, arrived


def listed(objects: list[list[Event]]) -> list[tuple[Kind, Mapping[str, Any]]]:
    return [(h[-1][0], h[-1][2]) for h in objects if h[-1][1] != "DELETED"]


def contents(store: Store) -> dict[str, Any]:
    """All that can be asked of the store's tables: records by UID, by name and by every index, and what is illegible."""
    tables: dict[Kind, Any] = {
        Kind.PODS: store.pods,
        Kind.CLAIMS: store.claims,
        Kind.REPLICA_SETS: store.replica_sets,
        Kind.DEPLOYMENTS: store.deployments,
        Kind.ROLLOUTS: store.rollouts,
    }
    return {
        "records": {kind: {r.uid: r for r in table} for kind, table in tables.items()},
        "names": {kind: {n: table.named("team", n) for n in ("a", "b")} for kind, table in tables.items()},
        "owned": {uid: store.pods.by("owner", uid) for uid in ("uid-web-1", "uid-web-2")},
        "gated": store.pods.by("gate", o.GATE),
        "sets": store.replica_sets.by("owner", "deployments-0"),
        "held": {
            c.uid: [store.claims.by("device", use.device) for use in c.uses or ()] for c in store.claims
        },
        "lost": sorted((lost.uid, lost.resource_version, lost.why) for lost in store.lost()),
        "rivals": {
            key: sorted(rival.name for rival in snapshot.rivals)
            for key in sorted(store.keys())
            if isinstance(snapshot := store.snapshot(key, store.now()), Snapshot)
        },
    }


@given(arrivals())
def test_the_end_is_what_a_list_shows(given_events: tuple[list[list[Event]], list[Event]]) -> None:
    objects, arrived = given_events
    store, expected = Store(), Store()
    for kind, event_type, raw in arrived:
        store.apply(kind, event_type, raw)
    for kind, raw in listed(objects):
        expected.apply(kind, None, raw)
    assert contents(store) == contents(expected)


@given(arrivals(), st.data())
def test_a_sweep_repairs_whatever_was_missed(
    given_events: tuple[list[list[Event]], list[Event]], data: st.DataObject
) -> None:
    objects, arrived = given_events
    store, expected = Store(), Store()
    for kind, event_type, raw in arrived:
        if data.draw(st.booleans()):
            store.apply(kind, event_type, raw)
    for kind, raw in listed(objects):
        store.apply(kind, None, raw)
        expected.apply(kind, None, raw)
    for kind in Kind:
        uids = {raw["metadata"]["uid"] for listed_kind, raw in listed(objects) if listed_kind is kind}
        store.sweep(kind, uids, 10_000)
    assert contents(store) == contents(expected)


@given(arrivals())
def test_a_state_is_told_once(given_events: tuple[list[list[Event]], list[Event]]) -> None:
    _, arrived = given_events
    store = Store()
    for kind, event_type, raw in arrived:
        store.apply(kind, event_type, raw)
        assert store.apply(kind, event_type, raw) == frozenset()
