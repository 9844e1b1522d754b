"""Fresh reads right before an act, as records: what `decide.confirm` asks for, read in parallel.

What was read goes to the store as well: were it behind, the next decision would ask for the same act again and again.
"""

import asyncio
from collections.abc import Callable
from typing import cast

from accelerator_rollout.act.client import Client, Raw
from accelerator_rollout.decide.actions import Action
from accelerator_rollout.decide.confirm import (
    Read,
    ReadClaim,
    ReadPod,
    ReadPool,
    ReadReplicaSet,
    ReadTaintRules,
    ReadWorkload,
    Result,
    reads_for,
)
from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.errors import InvalidError
from accelerator_rollout.observe.kinds import OF_WORKLOAD, Kind
from accelerator_rollout.observe.project import KUBELET_MANAGERS, project
from accelerator_rollout.records import SliceRecord, TaintRuleRecord


class Confirming:
    """Reads afresh what an action's safety hangs on."""

    def __init__(
        self,
        client: Client,
        kubelet_managers: frozenset[str] = KUBELET_MANAGERS,
        watched: Callable[[Kind, Raw], None] = lambda _kind, _raw: None,
    ) -> None:
        self._client = client
        self._managers = kubelet_managers
        self._watched = watched
        self._by_pool = True

    async def read(self, action: Action, snapshot: Snapshot) -> dict[Read, Result]:
        """Return what each read brought. Raises ActError or ProjectionError: the action must then not be taken."""
        wanted = tuple(dict.fromkeys(reads_for(action, snapshot)))
        results = await asyncio.gather(*(self._one(read, snapshot) for read in wanted))
        return dict(zip(wanted, results, strict=True))

    async def _one(self, read: Read, snapshot: Snapshot) -> Result:
        space = snapshot.rollout.namespace
        match read:
            case ReadWorkload():
                ref = snapshot.rollout.spec.workload_ref
                return await self._get(OF_WORKLOAD[ref.kind], space, ref.name)
            case ReadReplicaSet(name):
                return await self._get(Kind.REPLICA_SETS, space, name)
            case ReadPod(name):
                return await self._get(Kind.PODS, space, name)
            case ReadClaim(name):
                return await self._get(Kind.CLAIMS, space, name)
            case ReadPool(driver, pool):
                found = await self._slices(driver, pool)
                slices = (cast("SliceRecord", self._project(Kind.SLICES, raw)) for raw in found)
                return tuple(s for s in slices if s.pool == pool)
            case ReadTaintRules():
                found = await self._client.read_all(Kind.TAINT_RULES)
                return tuple(cast("TaintRuleRecord", self._project(Kind.TAINT_RULES, raw)) for raw in found)

    async def _slices(self, driver: str, pool: str) -> list[Raw]:
        """List a pool's slices; those of the whole driver where the API server cannot select by pool (before 1.37)."""
        by_driver = f"spec.driver={driver}"
        if self._by_pool:
            try:
                return await self._client.read_all(Kind.SLICES, fields=f"{by_driver},spec.pool.name={pool}")
            except InvalidError:
                self._by_pool = False
        return await self._client.read_all(Kind.SLICES, fields=by_driver)

    async def _get(self, kind: Kind, namespace: str, name: str) -> Result:
        raw = await self._client.read(kind, namespace, name)
        return None if raw is None else cast("Result", self._project(kind, raw))

    def _project(self, kind: Kind, raw: Raw) -> object:
        self._watched(kind, raw)
        return project(kind, raw, kubelet_managers=self._managers)
