"""Prepares and unprepares claims, and notes both in the ledger when they take effect.

Every call may come twice, or again after a crash of either side, or for a claim of which this driver knows nothing; one
claim is in one hand at a time, and a call that the kubelet gave up goes on to its end.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import aiohttp

from lab.client import Api, ApiError
from lab.ledger import Ledger
from lab.realnode.driver import cdi
from lab.realnode.driver.allocation import Allocated, allocated
from lab.realnode.driver.checkpoint import Checkpoint
from lab.realnode.driver.faults import Crash, FaultError, Faults, die
from lab.realnode.driver.kubelet_api import ClaimRef, Failure, Prepared, PreparedDevice, Unprepared
from lab.resources import RESOURCE_CLAIMS

_LOG: Final = logging.getLogger("driver")
_Outcome = TypeVar("_Outcome")


class Devices:
    """One node's devices of one driver: the `Plugin` that the kubelet talks to."""

    def __init__(
        self,
        api: Api,
        *,
        node: str,
        driver: str,
        ledger: Ledger,
        checkpoint: Checkpoint,
        faults: Path,
        files: Path,
        specs: Path,
    ) -> None:
        """`files` is the folder of the devices' files on the host, and `specs` that of CDI."""
        self._api = api
        self._node = node
        self._driver = driver
        self._ledger = ledger
        self._checkpoint = checkpoint
        self._faults = faults
        self._files = files
        self._specs = specs
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._works: set[asyncio.Task[Any]] = set()

    async def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, Prepared]:
        """Prepare the claims, each for itself: one that fails does not hinder the others."""
        return await self._each(claims, self._prepare)

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, Unprepared]:
        """Let go of the claims, each for itself."""
        return await self._each(claims, self._unprepare)

    async def close(self) -> None:
        """Give up what is still in work; what it has done so far is noted."""
        for task in self._works:
            task.cancel()
        await asyncio.gather(*self._works, return_exceptions=True)

    async def _each(
        self, claims: Sequence[ClaimRef], handle: Callable[[ClaimRef], Awaitable[_Outcome]]
    ) -> dict[str, _Outcome | Failure]:
        async def one(claim: ClaimRef) -> _Outcome | Failure:
            async with self._locks[claim.uid]:
                try:
                    return await handle(claim)
                except (
                    ApiError,
                    aiohttp.ClientError,
                    TimeoutError,
                    OSError,
                    FaultError,
                    LookupError,
                ) as error:
                    _LOG.warning("claim %s: %s", claim, error)
                    return Failure(f"claim {claim}: {error}")

        tasks = [asyncio.create_task(one(claim)) for claim in claims]
        self._works.update(tasks)
        for task in tasks:
            task.add_done_callback(self._works.discard)
        # A kubelet that waits no longer cancels the call, and asks again: the work must not end half-done.
        outcomes = await asyncio.shield(asyncio.gather(*tasks))
        return {claim.uid: outcome for claim, outcome in zip(claims, outcomes, strict=True)}

    async def _prepare(self, claim: ClaimRef) -> Prepared:
        faults = Faults.read(self._faults)
        self._crash(faults, Crash.BEFORE_PREPARE)
        if (kept := self._checkpoint.claims.get(claim.uid)) is not None:
            _LOG.info("prepare %s: it is prepared already", claim)
            return kept[1]
        if self._strikes(faults, "fail_prepares", faults.fail_prepares):
            return self._failed("prepare", claim)
        wanted = await self._look_up(claim)
        for one in wanted:
            self._file(one).touch()
            self._ledger.prepared(self._node, one.device, one.holder)
        _LOG.info("prepare %s: took %s", claim, ", ".join(one.device.name for one in wanted) or "nothing")
        self._crash(faults, Crash.WHILE_PREPARING)
        await asyncio.sleep(faults.prepare_seconds)
        cdi.write(self._specs, self._driver, claim.uid, {one.device.name: self._file(one) for one in wanted})
        devices = tuple(self._prepared(claim, one) for one in wanted)
        self._checkpoint.claims[claim.uid] = (claim, devices)
        self._checkpoint.save()
        self._crash(faults, Crash.AFTER_PREPARE)
        return devices

    async def _unprepare(self, claim: ClaimRef) -> Unprepared:
        faults = Faults.read(self._faults)
        self._crash(faults, Crash.BEFORE_UNPREPARE)
        held = self._ledger.held(node=self._node, claim_uid=claim.uid)
        if not held and claim.uid not in self._checkpoint.claims:
            _LOG.info("unprepare %s: it is not prepared", claim)
            return None
        if self._strikes(faults, "fail_unprepares", faults.fail_unprepares):
            return self._failed("unprepare", claim)
        await asyncio.sleep(faults.unprepare_seconds)
        cdi.remove(self._specs, self._driver, claim.uid)
        for entry in held:
            self._ledger.unprepared(self._node, entry.device, claim.uid)
        self._checkpoint.claims.pop(claim.uid, None)
        self._checkpoint.save()
        _LOG.info("unprepare %s: let go of %s", claim, ", ".join(entry.device.name for entry in held))
        self._crash(faults, Crash.AFTER_UNPREPARE)
        return None

    async def _look_up(self, claim: ClaimRef) -> tuple[Allocated, ...]:
        """The claim's devices of this driver; raises LookupError if it is not the one that the kubelet means."""
        body = await self._api.find(RESOURCE_CLAIMS, claim.name, claim.namespace)
        if body is None or body["metadata"]["uid"] != claim.uid:
            raise LookupError(f"no claim of this name has the UID {claim.uid}")
        if (found := allocated(body, self._driver)) is None:
            raise LookupError("it is not allocated")
        return found

    def _prepared(self, claim: ClaimRef, one: Allocated) -> PreparedDevice:
        return PreparedDevice(
            requests=(one.request,),
            pool=one.device.pool,
            device=one.device.name,
            cdi=(cdi.device_id(self._driver, claim.uid, one.device.name),),
            share=one.holder.share,
        )

    def _file(self, one: Allocated) -> Path:
        return self._files / one.device.name

    def _strikes(self, faults: Faults, fault: str, times: int) -> bool:
        return self._checkpoint.strikes(faults.order, fault, times)

    def _crash(self, faults: Faults, here: Crash) -> None:
        if faults.crash is here and self._strikes(faults, "crash", 1):
            _LOG.warning("crash %s, as told", here)
            die()

    def _failed(self, what: str, claim: ClaimRef) -> Failure:
        _LOG.warning("%s %s: fails, as told", what, claim)
        return Failure(f"{what} of claim {claim} fails, as the driver was told")
