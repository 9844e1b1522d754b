"""One node's pool of devices as its driver publishes it, whole or with each fault that a consumer must see through.

Pure: `ResourcePool` holds what the driver would say, `manifests` renders it. Generation and `resourceSliceCount` are
raised together in every slice, as KEP-4381 asks; only a fault breaks that.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

SLICE_LIMIT: Final = (
    64  # devices a slice may list once one of them carries a taint (resource.k8s.io validation)
)


class PoolFault(StrEnum):
    """Ways in which what is published is not the whole truth."""

    NONE = "none"
    INCOMPLETE = "incomplete"  # the last slice of the generation is not there
    DISAGREEING = "disagreeing"  # two slices of one generation name different counts
    DUPLICATE = "duplicate"  # two slices list one device
    MISSING = "missing"  # no slice at all


class TaintEffect(StrEnum):
    """What a device taint does (KEP-5055)."""

    NONE = "None"
    NO_SCHEDULE = "NoSchedule"
    NO_EXECUTE = "NoExecute"


@dataclass(frozen=True, slots=True)
class DeviceTaint:
    """A taint that the driver puts on a device."""

    key: str
    value: str = ""
    effect: TaintEffect = TaintEffect.NO_SCHEDULE

    def as_api(self) -> dict[str, str]:
        """As the ResourceSlice spells it."""
        taint = {"key": self.key, "effect": str(self.effect)}
        return {**taint, "value": self.value} if self.value else taint


@dataclass(slots=True)
class ResourcePool:
    """The devices of one driver on one node, in as many slices as wanted."""

    driver: str
    name: str
    node: str
    devices: tuple[str, ...]
    slices: int = 1
    generation: int = 0  # of the last publication; 0 before the first
    fault: PoolFault = PoolFault.NONE
    withdrawn: set[str] = field(default_factory=set)
    taints: dict[str, list[DeviceTaint]] = field(default_factory=dict)

    def require(self, device: str) -> str:
        """The device's name if this pool has it; raises KeyError otherwise."""
        if device not in self.devices:
            raise KeyError(f"pool {self.name} has no device {device!r}; it has {', '.join(self.devices)}")
        return device

    def next_generation(self) -> list[dict[str, Any]]:
        """Raise the generation and render every slice of it."""
        self.generation += 1
        return self.manifests()

    def manifests(self) -> list[dict[str, Any]]:
        """The slices that stand in the API at this generation, as manifests."""
        if self.fault is PoolFault.MISSING:
            return []
        present = [device for device in self.devices if device not in self.withdrawn]
        wanted = max(
            self.slices, math.ceil(len(present) / SLICE_LIMIT), 1 if self.fault is PoolFault.NONE else 2
        )
        parts = _split(present, wanted)
        counts = [len(parts)] * len(parts)
        match self.fault:
            case PoolFault.INCOMPLETE:
                parts.pop()
            case PoolFault.DISAGREEING:
                counts[-1] += 1
            case PoolFault.DUPLICATE if present:
                parts[-1] = [*parts[-1], present[0]]
            case _:
                pass
        return [
            self._slice(index, part, count)
            for index, (part, count) in enumerate(zip(parts, counts, strict=False))
        ]

    def slice_name(self, index: int) -> str:
        """The object name of the slice at this position: the same in every generation."""
        return f"{self.node}-{self.driver}-{index}"

    def _slice(self, index: int, devices: Sequence[str], count: int) -> dict[str, Any]:
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": self.slice_name(index)},
            "spec": {
                "driver": self.driver,
                "nodeName": self.node,
                "pool": {"name": self.name, "generation": self.generation, "resourceSliceCount": count},
                "devices": [self._device(device) for device in devices],
            },
        }

    def _device(self, name: str) -> dict[str, Any]:
        device: dict[str, Any] = {
            "name": name,
            "attributes": {
                "model": {"string": "simulated-lpu"},
                "index": {"int": self.devices.index(name)},
            },
            "capacity": {"memory": {"value": "80Gi"}},
        }
        if taints := self.taints.get(name):
            device["taints"] = [taint.as_api() for taint in taints]
        return device


def _split(items: Sequence[str], parts: int) -> list[list[str]]:
    """In order, into `parts` runs of nearly equal length; the first ones take what is left over."""
    size, over = divmod(len(items), parts)
    runs: list[list[str]] = []
    start = 0
    for index in range(parts):
        end = start + size + (1 if index < over else 0)
        runs.append(list(items[start:end]))
        start = end
    return runs
