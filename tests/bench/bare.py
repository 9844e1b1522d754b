"""The least that could open gates: a watch and a PATCH, in a process of its own. What the operator is compared with.

It opens the oldest gated pod whenever fewer device sets are held than there are. With `--confirm` it makes the same reads
before each opening as the operator does: pod, workload, predecessor, claim, slices of the pool, taint rules.
It proves nothing, remembers nothing, and is safe on a quiet cluster only.
"""

import argparse
import asyncio
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

from accelerator_rollout.names import GATE
from lab.client import Api, ApiError, EventType, Object, PatchType
from lab.kubeconfig import Connection
from lab.resources import (
    DEPLOYMENTS,
    DEVICE_TAINT_RULES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Resource,
)


class Bare:
    """The loop. `sets` is how many device sets there are."""

    def __init__(self, api: Api, namespace: str, sets: int, *, confirm: bool) -> None:
        self._api, self._space, self._sets, self._confirm = api, namespace, sets, confirm
        self._pods: dict[str, Object] = {}
        self._claims: dict[str, Object] = {}
        self._opened: set[str] = set()
        self._released: set[str] = set()  # pods whose claim was let go
        self._freed: Object | None = None  # the claim that was let go last
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Open gates for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(PODS, self._pods))
            group.create_task(self._follow(RESOURCE_CLAIMS, self._claims))
            group.create_task(self._open())

    async def _follow(self, resource: Resource, known: dict[str, Object]) -> None:
        async with aclosing(self._api.follow(resource, self._space)) as events:
            async for event in events:
                uid = event.object["metadata"]["uid"]
                if resource is RESOURCE_CLAIMS and _devices(known.get(uid)) and not _devices(event.object):
                    self._freed = known[uid]
                    self._released.add(_owner(known[uid]))
                if event.type is EventType.DELETED:
                    known.pop(uid, None)
                else:
                    known[uid] = event.object
                self._changed.set()

    async def _open(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            waiting = sorted(filter(self._waits, self._pods.values()), key=_age)
            for pod in waiting[: max(0, self._sets - self._held())]:
                self._opened.add(pod["metadata"]["uid"])
                if self._confirm:
                    await self._reread(pod)
                gate = {"spec": {"schedulingGates": [{"name": GATE, "$patch": "delete"}]}}
                await self._api.patch(
                    PODS, pod["metadata"]["name"], gate, self._space, patch_type=PatchType.STRATEGIC
                )

    def _waits(self, pod: Object) -> bool:
        leaving = pod["metadata"].get("deletionTimestamp")
        return _gated(pod) and not leaving and pod["metadata"]["uid"] not in self._opened

    def _held(self) -> int:
        open_pods = {u for u, p in self._pods.items() if u in self._opened or not _gated(p)}
        allocated = {_owner(c) for c in self._claims.values() if _devices(c)}
        return len((open_pods | allocated) - self._released)

    async def _reread(self, pod: Object) -> None:
        freed = self._freed or {"metadata": {"name": "none"}, "status": {}}
        uses = _devices(freed)
        app = pod["metadata"]["labels"]["app"]
        before = next((r["name"] for r in freed["metadata"].get("ownerReferences") or []), "none")
        reads = [
            self._read(PODS, pod["metadata"]["name"]),
            self._read(DEPLOYMENTS, app),
            self._read(PODS, before),
            self._read(RESOURCE_CLAIMS, freed["metadata"]["name"]),
            self._api.list(DEVICE_TAINT_RULES),
        ]
        for use in uses:
            chosen = f"spec.driver={use['driver']},spec.pool.name={use['pool']}"
            reads.append(self._api.list(RESOURCE_SLICES, field_selector=chosen))
        await asyncio.gather(*reads)

    async def _read(self, resource: Resource, name: str) -> None:
        with suppress(ApiError):
            await self._api.get(resource, name, self._space)


def _gated(pod: Object) -> bool:
    return any(g["name"] == GATE for g in pod["spec"].get("schedulingGates") or [])


def _devices(claim: Object | None) -> list[dict[str, Any]]:
    allocation = ((claim or {}).get("status") or {}).get("allocation") or {}
    return list((allocation.get("devices") or {}).get("results") or [])


def _owner(claim: Object) -> str:
    return next((str(r["uid"]) for r in claim["metadata"].get("ownerReferences") or []), "")


def _age(pod: Object) -> tuple[str, str]:
    return pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]


async def _main(options: argparse.Namespace) -> None:
    connection = Connection.from_kubeconfig(options.kubeconfig, context="lab")
    async with Api(connection, field_manager="bare") as api:
        await Bare(api, options.namespace, options.sets, confirm=options.confirm).run()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.bare", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--sets", type=int, required=True)
    parser.add_argument("--confirm", action="store_true")
    with suppress(KeyboardInterrupt):
        asyncio.run(_main(parser.parse_args()))
