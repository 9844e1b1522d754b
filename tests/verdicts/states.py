"""One cluster state around one device that somebody wants: slices, taint rules, claims, and the probe that asks for it.

Every state has a driver of its own, so hundreds of them live side by side and none changes another's answer. What is
generated are manifests; our verdict is made of their projections, as it would be of what a watch brings.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import strategies as st

from accelerator_rollout.decide.allocatable import Obstacle, Pool, holders_of, obstacle_to
from accelerator_rollout.names import GROUP, PLURAL
from accelerator_rollout.observe.devices import claim as claim_record
from accelerator_rollout.observe.devices import resource_slice, taint_rule
from accelerator_rollout.records import Device, NodeRecord

Json = dict[str, Any]

CLASS: Final = "verdicts.example.dev"
API: Final = "resource.k8s.io/v1"
NODES: Final[dict[str, dict[str, str]]] = {
    "verdict-node-0": {"verdicts/zone": "a", "verdicts/slots": "2"},
    "verdict-node-1": {"verdicts/zone": "b", "verdicts/slots": "8"},
}
POOL: Final = "pool"
WANTED: Final = "dev-0"
_NAMES: Final = ("dev-0", "dev-1", "dev-2")
_META: Final = {"uid": "u", "resourceVersion": "1", "namespace": "n"}


@dataclass(frozen=True)
class State:
    """Manifests without names of a cluster; `driver` and `namespace` are put in when they are made."""

    slices: tuple[Json, ...]
    rules: tuple[Json, ...]
    claims: tuple[Json, ...]  # each with the status that it is to have
    request: Json  # the probe's, for the wanted device

    def made(self, number: int, namespace: str) -> "Made":
        """Return the state with the names of its place in a cluster."""
        return Made(self, f"d{number}.verdicts.example.dev", f"state-{number}", namespace)


@dataclass(frozen=True)
class Made:
    """A state in a cluster."""

    state: State
    driver: str
    name: str
    namespace: str

    def slices(self) -> list[Json]:
        return [
            {
                "apiVersion": API,
                "kind": "ResourceSlice",
                "metadata": {"name": f"{self.name}-{number}"},
                "spec": {**spec, "driver": self.driver},
            }
            for number, spec in enumerate(self.state.slices)
        ]

    def rules(self) -> list[Json]:
        return [
            {
                "apiVersion": API,
                "kind": "DeviceTaintRule",
                "metadata": {"name": f"{self.name}-{number}"},
                "spec": {**rule, "deviceSelector": {"driver": self.driver, **rule["deviceSelector"]}},
            }
            for number, rule in enumerate(self.state.rules)
        ]

    def claims(self) -> list[Json]:
        return [self._claim(f"{self.name}-held-{n}", c["requests"]) for n, c in enumerate(self.state.claims)]

    def statuses(self) -> list[Json]:
        """The status of each claim: allocated, and held by somebody who is no pod, so that nobody deallocates it."""
        entry = {"apiGroup": GROUP, "resource": PLURAL, "name": "verdicts", "uid": "verdicts"}
        return [
            {
                "allocation": {
                    "devices": {"results": [{**r, "driver": self.driver} for r in claim["results"]]}
                },
                "reservedFor": [entry],
            }
            for claim in self.state.claims
        ]

    def probe_claim(self) -> Json:
        cel = f"device.driver == '{self.driver}' && device.attributes['{self.driver}'].id == '{WANTED}'"
        exactly = {
            "deviceClassName": CLASS,
            "selectors": [{"cel": {"expression": cel}}],
            **self.state.request,
        }
        return self._claim(f"{self.name}-probe", [{"name": "wanted", "exactly": exactly}])

    def _claim(self, name: str, requests: list[Json]) -> Json:
        return {
            "apiVersion": API,
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"devices": {"requests": requests}},
        }

    def verdict(self) -> Obstacle | None:
        """Return ours, on the manifests as they were made."""
        held = zip(self.claims(), self.statuses(), strict=True)
        return self.verdict_on(
            [_known(body) for body in self.slices()],
            [_known(body) for body in self.rules()],
            [{**_known(body), "status": status} for body, status in held],
            _known(self.probe_claim()),
        )

    def verdict_on(
        self, slices: Sequence[Json], rules: Sequence[Json], claims: Sequence[Json], probe: Json
    ) -> Obstacle | None:
        """Return ours, on these objects as a cluster shows them."""
        pool = Pool(
            self.driver,
            POOL,
            tuple(map(resource_slice, slices)),
            tuple(map(taint_rule, rules)),
            holders_of(map(claim_record, claims), self.namespace),
            node_records(),
        )
        return obstacle_to(Device(self.driver, POOL, WANTED), pool, claim_record(probe).requests)


def node_records() -> tuple[NodeRecord, ...]:
    return tuple(
        NodeRecord(name, name, "1", "boot", ready=True, ready_since=None, unschedulable=False, labels=labels)
        for name, labels in NODES.items()
    )


def _known(body: Json) -> Json:
    return {**body, "metadata": {**_META, **body["metadata"], "uid": body["metadata"]["name"]}}


# What may be


def _one_in(number: int) -> st.SearchStrategy[bool]:
    return st.sampled_from([False] * (number - 1) + [True])


_taints = st.sampled_from(
    [("broken", "NoSchedule"), ("broken", "NoExecute"), ("slow", "NoSchedule"), ("noted", "None")]
)
_taint_lists = st.lists(_taints, max_size=2, unique_by=lambda t: t).map(
    lambda found: [{"key": f"example.com/{key}", "value": "yes", "effect": effect} for key, effect in found]
)
_tolerations = st.sampled_from(
    [
        [],
        [],
        [{"operator": "Exists"}],
        [{"key": "example.com/broken", "operator": "Exists"}],
        [{"key": "example.com/broken", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}],
        [{"key": "example.com/slow", "operator": "Equal", "value": "no"}],
        [
            {"key": "example.com/slow", "operator": "Exists"},
            {"key": "example.com/broken", "operator": "Exists"},
        ],
    ]
)
_selectors = st.sampled_from(
    [
        [{"key": "verdicts/zone", "operator": "In", "values": ["a"]}],
        [{"key": "verdicts/zone", "operator": "NotIn", "values": ["a", "b"]}],
        [{"key": "verdicts/zone", "operator": "DoesNotExist"}],
        [{"key": "verdicts/slots", "operator": "Gt", "values": ["4"]}],
        [{"key": "verdicts/slots", "operator": "Lt", "values": ["2"]}],
    ]
)
_access: st.SearchStrategy[Json] = st.one_of(
    st.sampled_from([{"nodeName": name} for name in (*NODES, *NODES, *NODES, "verdict-node-of-old")]),
    st.just({"allNodes": True}),
    _selectors.map(lambda wanted: {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": wanted}]}}),
)


@st.composite
def states(draw: st.DrawFn) -> State:
    """Any state: of whole devices, of partitions, or of shared devices."""
    sort = draw(st.sampled_from(["whole", "partitions", "shared"]))
    names = draw(st.sampled_from([*[_NAMES] * 3, *[_NAMES[:2]] * 4, _NAMES[:1], _NAMES[1:]]))
    each = draw(_one_in(5))
    devices = [draw(_device(name, sort, each=each)) for name in names]
    if not each and draw(_one_in(15)):
        devices.append({**devices[0]})  # published twice, in two slices
    slices = draw(_pool(devices, sort, each=each))
    claims = draw(st.lists(_claim(names, sort), max_size=3))
    rules = [draw(_rule())] if draw(_one_in(4)) else []
    request: Json = {}
    if tolerations := draw(_tolerations):
        request["tolerations"] = tolerations
    if sort == "shared" and draw(st.booleans()):
        request["capacity"] = {
            "requests": {"memory": draw(st.sampled_from(["3Gi", "10Gi", "25Gi", "50Gi", "90Gi"]))}
        }
    return State(tuple(slices), tuple(rules), tuple(claims), request)


@st.composite
def _device(draw: st.DrawFn, name: str, sort: str, *, each: bool) -> Json:
    device: Json = {"name": name, "attributes": {"id": {"string": name}}}
    if draw(_one_in(3)) and (taints := draw(_taint_lists)):
        device["taints"] = taints
    if each:
        device |= draw(_access)
    if sort == "partitions":
        amount = draw(st.sampled_from(["10Gi", "40Gi", "80Gi"]))
        counters = {"memory": {"value": amount}}
        if draw(st.booleans()):
            counters["cores"] = {"value": draw(st.sampled_from(["1", "2500m"]))}
        device["consumesCounters"] = [{"counterSet": "card", "counters": counters}]
    if sort == "shared":
        device["allowMultipleAllocations"] = True
        device["capacity"] = {"memory": {"value": "80Gi", **draw(_policies)}}
    return device


_policies: st.SearchStrategy[Json] = st.sampled_from(
    [
        {},
        {"requestPolicy": {"default": "10Gi", "validRange": {"min": "5Gi", "max": "60Gi", "step": "5Gi"}}},
        {"requestPolicy": {"default": "10Gi", "validRange": {"min": "5Gi"}}},
        {"requestPolicy": {"default": "20Gi", "validValues": ["10Gi", "20Gi", "40Gi"]}},
    ]
)


@st.composite
def _pool(draw: st.DrawFn, devices: Sequence[Json], sort: str, *, each: bool) -> list[Json]:
    """The pool's slices: one or two of devices, one of counters where it has partitions; perhaps not all, or older ones."""
    generation = draw(st.integers(1, 3))
    access: Json = {"perDeviceNodeSelection": True} if each else draw(_access)
    apart = len({d["name"] for d in devices}) < len(devices) or draw(st.booleans())
    groups = [list(devices[:1]), list(devices[1:])] if apart and len(devices) > 1 else [list(devices)]
    if len(devices) > len({d["name"] for d in devices}):
        groups = [list(devices[:-1]), [devices[-1]]]
    specs: list[Json] = [{"devices": group} for group in groups]
    if sort == "partitions":
        counters = {"memory": {"value": "80Gi"}, "cores": {"value": "4"}}
        if draw(_one_in(12)):
            del counters["cores"]  # a device may draw on what is not there
        specs.append({"sharedCounters": [{"name": "card", "counters": counters}]})
    announced = len(specs) + draw(_one_in(12))
    shown = [{**spec, **access, "pool": _named(generation, announced)} for spec in specs]
    if generation > 1 and not each and draw(st.booleans()):
        old = {"name": "dev-0", "attributes": {"id": {"string": "dev-0"}}}
        shown.append({"devices": [old], **access, "pool": _named(generation - 1, 1)})
    return shown


def _named(generation: int, count: int) -> Json:
    return {"name": POOL, "generation": generation, "resourceSliceCount": count}


@st.composite
def _claim(draw: st.DrawFn, names: Sequence[str], sort: str) -> Json:
    """An allocated claim: of one device or two, whole, shared, or by administrative access."""
    chosen = draw(
        st.lists(st.sampled_from((*names, *names, "dev-gone")), min_size=1, max_size=2, unique=True)
    )
    admin = draw(_one_in(4))
    requests, results = [], []
    for number, device in enumerate(chosen):
        name = f"r{number}"
        exactly: Json = {"deviceClassName": CLASS} | ({"adminAccess": True} if admin else {})
        result: Json = {"request": name, "pool": POOL, "device": device}
        if admin:
            result["adminAccess"] = True
        elif sort == "shared":
            share = draw(st.uuids(version=4))
            result["shareID"] = str(share)
            result["consumedCapacity"] = {"memory": draw(st.sampled_from(["10Gi", "40Gi", "70Gi"]))}
        requests.append({"name": name, "exactly": exactly})
        results.append(result)
    return {"requests": requests, "results": results}


@st.composite
def _rule(draw: st.DrawFn) -> Json:
    selector: Json = {}
    if draw(st.booleans()):
        selector["pool"] = draw(st.sampled_from([POOL, "another"]))
    if draw(st.booleans()):
        selector["device"] = draw(st.sampled_from(_NAMES[:2]))
    key, effect = draw(_taints)
    return {
        "deviceSelector": selector,
        "taint": {"key": f"example.com/{key}", "value": "yes", "effect": effect},
    }
