"""Publishes the driver's pool, and again whenever somebody else takes a slice of it away or changes it."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

import aiohttp

from lab.client import Api, ApiError, EventType
from lab.nodes.objects import node_owner
from lab.nodes.pool import ResourcePool
from lab.resources import NODES, RESOURCE_SLICES

_LOG: Final = logging.getLogger("driver")
_PAUSE_SECONDS: Final = 0.5
_NODE_SECONDS: Final = 300.0


class Publisher:
    """Keeps the pool's slices as they should be while `keep` runs.

    The kubelet wipes the slices of a driver that is not registered, half a minute after it went, and all slices of its node
    when it starts itself: a driver that lives publishes them anew.
    """

    def __init__(self, api: Api, pool: ResourcePool) -> None:
        self._api = api
        self._pool = pool
        self._seen: dict[str, dict[str, Any]] = {}  # by name: the slices of ours that the API has
        self._owner: dict[str, Any] = {}
        self._wished = asyncio.Event()
        self._wished.set()

    def pause(self) -> None:
        """Publish nothing until `resume`: who is not registered has no say. What stands is left alone."""
        self._wished.clear()

    def resume(self) -> None:
        """Publish what is missing."""
        self._wished.set()

    async def keep(self) -> None:
        """Run until cancelled. Refusals by the API server are logged, and tried again."""
        node = await self._api.wait_for(NODES, self._pool.node, lambda _: True, timeout=_NODE_SECONDS)
        self._owner = {**node_owner(node), "controller": True}
        changed, listed = asyncio.Event(), asyncio.Event()
        watch = asyncio.create_task(self._watch(changed, listed), name="watch slices")
        try:
            await self._until(listed, watch)
            _LOG.info("found %d slices of generation %d", len(self._seen), self._newest())
            while True:
                await self._wished.wait()
                if not await self._mend():
                    await asyncio.sleep(_PAUSE_SECONDS)
                    continue
                await self._until(changed, watch)
                changed.clear()
        finally:
            watch.cancel()

    async def _until(self, happened: asyncio.Event, watch: asyncio.Task[None]) -> None:
        """Await the event; raises what ended the watch, since then it would never come."""
        wait = asyncio.create_task(happened.wait())
        await asyncio.wait((wait, watch), return_when=asyncio.FIRST_COMPLETED)
        wait.cancel()
        if watch.done():
            watch.result()

    async def _watch(self, changed: asyncio.Event, listed: asyncio.Event) -> None:
        changes = self._api.follow(RESOURCE_SLICES, field_selector=self._selector, listed=listed)
        async for event, body in changes:
            name = body["metadata"]["name"]
            known = self._seen.get(name, body)["metadata"]
            # The watch tells of our own writes late: what is older than the answer that we had is no news.
            if event is EventType.DELETED:
                if known["uid"] == body["metadata"]["uid"]:
                    self._seen.pop(name, None)
            elif int(body["metadata"]["resourceVersion"]) >= int(known["resourceVersion"]):
                self._seen[name] = body
            changed.set()

    def _newest(self) -> int:
        return max((one["spec"]["pool"]["generation"] for one in self._seen.values()), default=0)

    async def _mend(self) -> bool:
        """Raise the generation of the whole pool unless all of it stands in the API as it should; say whether it does now."""
        self._pool.generation = max(self._pool.generation, self._newest())
        wanted = {one["metadata"]["name"]: one for one in self._pool.manifests()}
        if self._pool.generation and all(
            name in self._seen and _covers(self._seen[name]["spec"], one["spec"])
            for name, one in wanted.items()
        ):
            return True
        try:
            for manifest in self._pool.next_generation():
                manifest["metadata"]["ownerReferences"] = [self._owner]
                await self._put(manifest)
            for name in set(self._seen) - set(wanted):
                await self._api.delete_if_there(RESOURCE_SLICES, name)
                self._seen.pop(name, None)
            _LOG.info("published %d devices, generation %d", len(self._pool.devices), self._pool.generation)
        except (ApiError, aiohttp.ClientError, TimeoutError) as error:
            _LOG.warning("publishing: %s", error)
            return False
        return True

    async def _put(self, manifest: dict[str, Any]) -> None:
        name = manifest["metadata"]["name"]
        try:
            body = {"spec": manifest["spec"], "metadata": manifest["metadata"]}
            self._seen[name] = await self._api.patch(RESOURCE_SLICES, name, body)
        except ApiError as error:
            if not error.is_not_found:
                raise
            self._seen[name] = await self._api.create(RESOURCE_SLICES, manifest)

    @property
    def _selector(self) -> str:
        return f"spec.nodeName={self._pool.node},spec.driver={self._pool.driver}"


def _covers(found: Any, wanted: Any) -> bool:
    """Whether all that is wanted stands there; the API server may have added defaults."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(_covers(found.get(key), wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(found) == len(wanted)
            and all(_covers(one, other) for one, other in zip(found, wanted, strict=True))
        )
    return bool(found == wanted)
