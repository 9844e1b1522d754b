"""ResourceClaims, ResourceSlices and DeviceTaintRules → records. Pure.

Fields that moved between versions of resource.k8s.io are looked up in one function each.
"""

from decimal import Decimal
from sys import intern
from typing import Any

import accelerator_rollout.observe.fields as read
from accelerator_rollout.names import RESERVED_BY_LABEL, RESERVED_IN_LABEL
from accelerator_rollout.observe.fields import Raw, UnclearError
from accelerator_rollout.observe.quantities import quantity
from accelerator_rollout.records import (
    Access,
    Capacity,
    ClaimRecord,
    Counter,
    Device,
    DeviceRequest,
    DeviceUse,
    NodeTerm,
    PublishedDevice,
    Reservation,
    SliceRecord,
    Taint,
    TaintRuleRecord,
    Toleration,
)

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


def claim(raw: Raw) -> ClaimRecord:
    """Return the record of a ResourceClaim."""
    meta, status = read.mapping(raw, "metadata"), read.mapping(raw, "status")
    owner = read.controller(meta)
    pod = owner if owner and owner.kind == "Pod" else None
    return ClaimRecord(
        namespace=intern(read.need(meta, "namespace")),
        name=read.need(meta, "name"),
        uid=read.need(meta, "uid"),
        resource_version=read.version(meta),
        owner_pod_uid=pod.uid if pod else "",
        deletion=read.time(meta, "deletionTimestamp"),
        reserved_for=tuple(
            Reservation(
                api_group=intern(read.text(entry, "apiGroup")),
                resource=intern(read.text(entry, "resource")),
                name=read.text(entry, "name"),
                uid=read.text(entry, "uid"),
            )
            for entry in read.items(status, "reservedFor")
        ),
        uses=_uses(status),
        finalizers=read.texts(meta, "finalizers"),
        owner_pod_name=pod.name if pod else "",
        requests=tuple(
            found
            for entry in read.items(read.mapping(raw, "spec", "devices"), "requests")
            for found in _requests(entry)
        ),
    )


def _uses(status: Raw) -> tuple[DeviceUse, ...] | None:
    if status.get("allocation") is None:
        return None
    results = read.items(read.mapping(read.mapping(status, "allocation"), "devices"), "results")
    return tuple(
        DeviceUse(
            device=Device(
                driver=intern(read.need(result, "driver")),
                pool=intern(read.need(result, "pool")),
                name=intern(read.need(result, "device")),
            ),
            admin=read.flag(result, "adminAccess"),
            share_id=read.text(result, "shareID"),
            consumed=_amounts(read.mapping(result, "consumedCapacity")),
            request=intern(read.text(result, "request")),
            binding=read.texts(result, "bindingConditions"),
        )
        for result in results
    )


def _requests(raw: Raw) -> list[DeviceRequest]:
    """Return a request, or its alternatives; before v1beta2 a request says itself what is under `exactly` since."""
    name = read.need(raw, "name")
    options = read.items(raw, "firstAvailable")
    if options:
        return [_request(option, f"{name}/{read.need(option, 'name')}") for option in options]
    return [_request(read.mapping(raw, "exactly") or raw, name)]


def _request(raw: Raw, name: str) -> DeviceRequest:
    return DeviceRequest(
        name=intern(name),
        tolerations=tuple(
            Toleration(
                key=intern(read.text(entry, "key")),
                operator=intern(read.text(entry, "operator")),
                value=read.text(entry, "value"),
                effect=intern(read.text(entry, "effect")),
            )
            for entry in read.items(raw, "tolerations")
        ),
        capacity=_amounts(read.mapping(raw, "capacity", "requests")),
        admin=read.flag(raw, "adminAccess"),
    )


def _amounts(raw: Raw) -> tuple[tuple[str, Decimal], ...]:
    return tuple((intern(str(name)), _quantity(value)) for name, value in raw.items())


def _quantity(value: Any) -> Decimal:
    try:
        return quantity(str(value))
    except ValueError as error:
        raise UnclearError(f"{value!r} is no quantity") from error


def resource_slice(raw: Raw) -> SliceRecord:
    """Return the record of a ResourceSlice."""
    meta, spec = read.mapping(raw, "metadata"), read.mapping(raw, "spec")
    pool = read.mapping(spec, "pool")
    each = read.flag(spec, "perDeviceNodeSelection")
    return SliceRecord(
        name=read.need(meta, "name"),
        uid=read.need(meta, "uid"),
        resource_version=read.version(meta),
        driver=intern(read.need(spec, "driver")),
        pool=intern(read.need(pool, "name")),
        generation=read.integer(pool, "generation", 0),
        slice_count=read.integer(pool, "resourceSliceCount", 0),
        devices=tuple(_device(device, each=each) for device in read.items(spec, "devices")),
        counters=tuple(
            counter
            for entry in read.items(spec, "sharedCounters")
            for counter in _counters(entry, read.need(entry, "name"))
        ),
        access=_access(spec),
    )


def published(raw: Raw) -> dict[str, Any]:
    """Return what a slice says of a device in plain values: attributes, capacity (as numbers) and taints."""
    fields = _device_fields(raw)
    return {
        "attributes": {
            str(name): next((v for v in value.values() if v is not None), None)
            for name, value in read.mapping(fields, "attributes").items()
        },
        "capacity": {
            str(name): float(_quantity(_valued(value).get("value")))
            for name, value in read.mapping(fields, "capacity").items()
        },
        "taints": [
            {key: read.text(taint, key) for key in ("key", "value", "effect")}
            for taint in read.items(fields, "taints")
        ],
    }


def _device(raw: Raw, *, each: bool) -> PublishedDevice:
    fields = _device_fields(raw)
    return PublishedDevice(
        name=intern(read.need(raw, "name")),
        taints=tuple(_taint(taint) for taint in read.items(fields, "taints")),
        draws=tuple(
            counter
            for entry in read.items(fields, "consumesCounters")
            for counter in _counters(entry, read.need(entry, "counterSet"))
        ),
        capacity=tuple(
            _capacity(intern(str(name)), _valued(value))
            for name, value in read.mapping(fields, "capacity").items()
        ),
        shared=read.flag(fields, "allowMultipleAllocations"),
        access=_access(fields) if each else None,
    )


def _device_fields(device: Raw) -> Raw:
    """Return where a device's own fields stand: in itself as of v1beta2, under `basic` before."""
    return read.mapping(device, "basic") or device


def _counters(raw: Raw, name: str) -> list[Counter]:
    return [
        Counter(intern(name), intern(str(counter)), _quantity(_valued(value).get("value")))
        for counter, value in read.mapping(raw, "counters").items()
    ]


def _valued(value: Any) -> Raw:
    """Return an amount as it stands today, under `value`; the first version had the bare quantity."""
    return value if isinstance(value, dict) else {"value": value}


def _capacity(name: str, raw: Raw) -> Capacity:
    policy = read.mapping(raw, "requestPolicy")
    span = read.mapping(policy, "validRange")
    values = policy.get("validValues") or ()
    return Capacity(
        name=name,
        value=_quantity(raw.get("value")),
        default=_maybe(policy, "default"),
        choices=tuple(sorted(_quantity(value) for value in values)),
        least=_maybe(span, "min"),
        most=_maybe(span, "max"),
        step=_maybe(span, "step"),
    )


def _maybe(raw: Raw, key: str) -> Decimal | None:
    found = raw.get(key)
    return None if found is None else _quantity(found)


def _access(raw: Raw) -> Access:
    """Return who may use it. A way that we do not know opens it to nobody, as the scheduler has it."""
    terms = read.items(read.mapping(raw, "nodeSelector"), "nodeSelectorTerms")
    return Access(
        node=intern(read.text(raw, "nodeName")),
        every=read.flag(raw, "allNodes"),
        terms=tuple(
            NodeTerm(
                *(
                    read.requirements(term, key, _OPERATORS, "node")
                    for key in ("matchExpressions", "matchFields")
                )
            )
            for term in terms
        ),
    )


def _taint(raw: Raw) -> Taint:
    return Taint(
        key=intern(read.text(raw, "key")),
        value=read.text(raw, "value"),
        effect=intern(read.need(raw, "effect")),
    )


def taint_rule(raw: Raw) -> TaintRuleRecord:
    """Return the record of a DeviceTaintRule."""
    meta, spec = read.mapping(raw, "metadata"), read.mapping(raw, "spec")
    selector, taint = read.mapping(spec, "deviceSelector"), _taint(read.mapping(spec, "taint"))
    labels = read.mapping(meta, "labels")
    if (
        spec.get("deviceSelector") is None
    ):  # KEP-5055: without a selector it matches nothing, so it taints nothing
        taint = Taint(taint.key, taint.value, "None")
    # A criterion that we do not know can only narrow the rule: ignored, we see too many taints, never too few.
    return TaintRuleRecord(
        name=read.need(meta, "name"),
        uid=read.need(meta, "uid"),
        resource_version=read.version(meta),
        driver=read.text(selector, "driver"),
        pool=read.text(selector, "pool"),
        device=read.text(selector, "device"),
        taint=taint,
        reserved_by=read.text(labels, RESERVED_BY_LABEL),
        reserved_in=read.text(labels, RESERVED_IN_LABEL),
    )
