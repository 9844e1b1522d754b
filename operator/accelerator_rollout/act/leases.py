"""The Lease that decides who acts, over a connection and with a patience of its own: a slow write must not cost it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from accelerator_rollout.act.client import MERGE_PATCH, ApiClient
from accelerator_rollout.act.rights import Right
from accelerator_rollout.clock import Clock, micro_time
from accelerator_rollout.control.leadership import AlwaysLeader, Lease, Record
from accelerator_rollout.errors import GoneError
from accelerator_rollout.names import FIELD_MANAGER
from accelerator_rollout.observe.login import LoadConfiguration

_GROUP: Final = "coordination.k8s.io"
_BY: Final = {"fieldManager": FIELD_MANAGER}


@dataclass(frozen=True, slots=True)
class Place:
    """Where the Lease is."""

    namespace: str
    name: str

    @property
    def needed(self) -> tuple[Right, ...]:
        """What a candidate needs. A right to create cannot be bound to a name."""
        return (
            Right("get", _GROUP, "leases", name=self.name),
            Right("patch", _GROUP, "leases", name=self.name),
            Right("create", _GROUP, "leases"),
        )


class ApiLeases:
    """The Lease of a real API server. Its writes ask nobody: they are how leadership comes about."""

    def __init__(
        self,
        load: LoadConfiguration,
        place: Place,
        clock: Clock,
        counted: Callable[[str, str, str], None],
        timeout_seconds: float,
    ) -> None:
        self._place, self._clock = place, clock
        self._client = ApiClient(
            load, lambda: (), AlwaysLeader(), counted=counted, timeout_seconds=timeout_seconds
        )
        self._all = f"/apis/{_GROUP}/v1/namespaces/{place.namespace}/leases"
        self._one = f"{self._all}/{place.name}"

    async def close(self) -> None:
        """End the session."""
        await self._client.close()

    async def read(self) -> Lease | None:
        """Return the Lease; None if there is none."""
        try:
            return _lease(await self._client.call("get", "leases", self._one))
        except GoneError:
            return None

    async def create(self, record: Record) -> Lease:
        """Create the Lease, acquired and renewed now."""
        now = micro_time(self._clock())
        body = {"metadata": {"name": self._place.name}, "spec": _spec(record, now, now)}
        return _lease(await self._client.call("post", "leases", self._all, params=_BY, body=body))

    async def write(self, old: Lease, record: Record, *, acquired: bool) -> Lease:
        """Renew the Lease, and with `acquired` take it; labels and what else others wrote stay."""
        now = micro_time(self._clock())
        meta = {"uid": old.record.uid, "resourceVersion": old.version}
        spec = _spec(record, now if acquired else record.acquired or now, now)
        body = {"metadata": meta, "spec": spec}
        return _lease(
            await self._client.call("patch", "leases", self._one, params=_BY, body=body, content=MERGE_PATCH)
        )


def _spec(record: Record, acquired: str, renewed: str) -> dict[str, Any]:
    return {
        "holderIdentity": record.holder,
        "leaseDurationSeconds": record.duration,
        "acquireTime": acquired,
        "renewTime": renewed,
        "leaseTransitions": record.transitions,
    }


def _lease(raw: Mapping[str, Any]) -> Lease:
    meta, spec = raw["metadata"], raw.get("spec") or {}
    record = Record(
        holder=spec.get("holderIdentity") or "",
        duration=spec.get("leaseDurationSeconds") or 0,
        acquired=spec.get("acquireTime") or "",
        renewed=spec.get("renewTime") or "",
        transitions=spec.get("leaseTransitions") or 0,
        uid=meta["uid"],
    )
    return Lease(record, meta["resourceVersion"])
