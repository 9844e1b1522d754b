"""Which workload an object stands for: the one that it names, of the kind that it names, and no other."""

from typing import Any

import pytest

from accelerator_rollout.api.models import Unreadable
from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.observe.kinds import Kind
from accelerator_rollout.observe.store import Store

from . import objects as o

KEY = ("team", "mine")


def of(**ref: str) -> dict[str, Any]:
    raw = o.rollout("mine")
    raw["spec"]["workloadRef"] |= ref
    return raw


def everything(store: Store) -> None:
    """Workloads of every kind, two of them of one name."""
    for name in ("web", "db"):
        store.apply(Kind.DEPLOYMENTS, "ADDED", o.deployment(name))
    store.apply(Kind.STATEFUL_SETS, "ADDED", o.stateful_set("db", uid="uid-set-db"))


@pytest.mark.parametrize(
    ("ref", "uid"),
    [
        ({"kind": "Deployment", "name": "web"}, "uid-web"),
        ({"kind": "Deployment", "name": "db"}, "uid-db"),
        ({"kind": "StatefulSet", "name": "db"}, "uid-set-db"),
        ({"kind": "StatefulSet", "name": "web"}, None),
    ],
)
def test_it_is_the_one_of_that_kind_and_name(store: Store, ref: dict[str, str], uid: str | None) -> None:
    everything(store)
    store.apply(Kind.ROLLOUTS, "ADDED", of(**ref))
    found = store.snapshot(KEY, store.now())
    assert isinstance(found, Snapshot)
    assert (found.workload.uid if found.workload else None) == uid


def test_no_workload_of_another_api_is_driven(store: Store) -> None:
    everything(store)
    ref = {"apiVersion": "apps/v1beta2", "kind": "Deployment", "name": "web"}
    store.apply(Kind.ROLLOUTS, "ADDED", of(**ref))
    found = store.snapshot(KEY, store.now())
    assert isinstance(found, Unreadable)
    assert 'apiVersion "apps/v1beta2"' in found.message
