"""Whatever stands in an object, the store takes it in: readable, unreadable, or of no use, but never an exception."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.observe.kinds import Kind
from accelerator_rollout.observe.store import Store

from . import objects as o

EXAMPLES: dict[Kind, Callable[[], dict[str, Any]]] = {
    Kind.PODS: lambda: o.ended_by("kubelet", o.pod("a", gated=True, claims={"lpu": "ca"})),
    Kind.CLAIMS: lambda: o.claim("ca", pod_uid="uid-a", device="lpu-0"),
    Kind.SLICES: lambda: o.resource_slice("s"),
    Kind.TAINT_RULES: lambda: o.taint_rule("t", selector={"driver": o.DRIVER}),
    Kind.NODES: lambda: o.node("node-1"),
    Kind.BUDGETS: lambda: o.budget(selector={"matchExpressions": [{"key": "app", "operator": "Exists"}]}),
    Kind.DEPLOYMENTS: o.deployment,
    Kind.REPLICA_SETS: o.replica_set,
    Kind.STATEFUL_SETS: o.stateful_set,
    Kind.DAEMON_SETS: o.daemon_set,
    Kind.REVISIONS: o.controller_revision,
    Kind.ROLLOUTS: lambda: o.rollout(
        status={"replacements": [o.replacement("a", claim_name="ca", device="lpu-0")]}
    ),
}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def paths(found: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """All places in a JSON value."""
    steps = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    for step, inner in steps:
        yield (*path, step)
        yield from paths(inner, (*path, step))


@st.composite
def odd_objects(draw: st.DrawFn) -> tuple[Kind, dict[str, Any]]:
    """An object with one place in it replaced by anything at all."""
    kind = draw(st.sampled_from(list(EXAMPLES)))
    raw = copy.deepcopy(EXAMPLES[kind]())
    *way, last = draw(st.sampled_from(list(paths(raw))))
    found: Any = raw
    for step in way:
        found = found[step]
    found[last] = draw(json_values)
    return kind, raw


@given(odd_objects())
def test_one_odd_object_harms_nobody(odd: tuple[Kind, dict[str, Any]]) -> None:
    store = Store()
    for kind, example in EXAMPLES.items():
        store.apply(kind, "ADDED", example())
    store.apply(Kind.ROLLOUTS, "ADDED", o.rollout("other", workload="other"))
    kind, raw = odd
    store.apply(kind, "MODIFIED", raw)
    for key in sorted(store.keys()):
        store.snapshot(key, store.now())
    store.strays()
    store.sweep(kind, set(), 10**12)
    store.apply(kind, "DELETED", raw)
    assert isinstance(store.snapshot(("team", "other"), store.now()), Snapshot) or kind is Kind.ROLLOUTS


@given(st.sampled_from(list(Kind)), json_values)
def test_not_even_one_that_is_no_object(kind: Kind, raw: Any) -> None:
    store = Store()
    store.apply(kind, "ADDED", raw)
    store.apply(kind, "DELETED", raw)
