"""A proxy before the API server that can fail in every way a wire can, and hide what the cluster serves."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Self

import aiohttp
from aiohttp import web

from lab.kubeconfig import Connection
from lab.resources import Resource

Object = dict[str, Any]

TASK = "wire: takes what comes"  # the name of the tasks of its own, to be told from those of what is tested


@dataclass(frozen=True, slots=True)
class Sent:
    """One request as it arrived; watches are left out."""

    method: str
    path: str
    body: bytes

    @property
    def writes(self) -> bool:
        """Whether it changes something."""
        return self.method not in ("GET", "HEAD")

    def json(self) -> Object:
        """Its body."""
        return dict(json.loads(self.body))


class Wire:
    """Passes requests on to the API server, as told: loses or delays events, breaks watches, refuses, or is not there at all."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._upstream: aiohttp.ClientSession
        self._runner: web.AppRunner
        self._watches: dict[asyncio.Task[Any], tuple[str, web.StreamResponse]] = {}
        self._muted: set[str] = set()
        self._frozen: set[asyncio.Task[Any]] = set()
        self._over = asyncio.Event()
        self.refused: dict[str, int] = {}  # end of a path → the status that it answers with
        self.retry_after = 0  # seconds that a refusal asks for, in its header
        self.silent: set[str] = set()  # ends of paths that get no answer at all
        self.token = ""  # what a request has to bring, if anything
        self.unwatchable: set[str] = set()  # resources whose watches are refused
        self.late: dict[str, float] = {}  # resource → by how many seconds its events come late, in order
        self.hidden: set[str] = set()  # resources that discovery does not show
        self.rewritten: dict[str, Callable[[Object], Object]] = {}  # objects of this name, in lists
        self.requests: Counter[str] = Counter()
        self.sent: list[Sent] = []
        self.hidden_versions: set[str] = set()  # group/version that the cluster seems not to serve
        self.down = False
        self.url = ""

    async def __aenter__(self) -> Self:
        headers = {"Authorization": f"Bearer {self._connection.token}"} if self._connection.token else {}
        connector = aiohttp.TCPConnector(ssl=self._connection.ssl_context(), limit=0)
        self._upstream = aiohttp.ClientSession(self._connection.server, connector=connector, headers=headers)
        application = web.Application(client_max_size=16 * 2**20)
        application.router.add_route("*", "/{path:.*}", self._pass_on)
        self._runner = web.AppRunner(application, shutdown_timeout=0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over.set()
        self.cut()
        await self._runner.cleanup()
        await self._upstream.close()
        await asyncio.sleep(0.1)  # TLS connections close a moment after their session

    def mute(self, resource: Resource) -> None:
        """Lose all further events of this kind, while the watch seems to live."""
        self._muted.add(resource.plural)

    async def expire(self, resource: Resource) -> None:
        """End the watch of this kind with "too old resource version", as after a long outage."""
        gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
        for task, (plural, response) in list(self._watches.items()):
            if plural == resource.plural:
                await response.write(json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n")
                task.cancel()
        self._muted.discard(resource.plural)

    def freeze(self) -> None:
        """Pass nothing more on of the watches that stand, and keep their connections: a black hole."""
        self._frozen |= self._watches.keys()

    def cut(self) -> None:
        """Break every connection that watches."""
        for task in list(self._watches):
            task.cancel()

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        watch = "watch" in request.query
        self.requests[f"{request.method} {request.path}" + (" (watch)" if watch else "")] += 1
        if not watch:
            self.sent.append(Sent(request.method, request.path, await request.read()))
        if self.down:
            assert request.transport is not None
            request.transport.abort()
            return web.Response(status=503)
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return _refusal(401, {})
        for path, status in self.refused.items():
            if request.path.endswith(path):
                return _refusal(status, {"Retry-After": str(self.retry_after)} if self.retry_after else {})
        if any(request.path.endswith(path) for path in self.silent):
            await self._over.wait()
        if watch and request.path.rpartition("/")[2] in self.unwatchable:
            return web.json_response({"kind": "Status", "message": "no watch today"}, status=500)
        if any(request.path.startswith(f"/apis/{version}/") for version in self.hidden_versions):
            return web.Response(status=404, text="404 page not found")
        headers = {"Accept": request.headers.get("Accept", "application/json")}
        if "Content-Type" in request.headers:
            headers["Content-Type"] = request.headers["Content-Type"]
        timeout = aiohttp.ClientTimeout(total=None if watch else 30)
        async with self._upstream.request(
            request.method,
            request.path_qs,
            headers=headers,
            timeout=timeout,
            data=await request.read() or None,
        ) as upstream:
            if watch and upstream.status == 200:
                return await self._stream(request, upstream)
            body = await upstream.read()
            return web.Response(
                body=self._edited(body), status=upstream.status, content_type="application/json"
            )

    def _edited(self, body: bytes) -> bytes:
        if not self.hidden and not self.rewritten and not self.hidden_versions:
            return body
        found = json.loads(body)
        for group in found["groups"] if found.get("kind") == "APIGroupList" else ():
            group["versions"] = [
                v for v in group["versions"] if v["groupVersion"] not in self.hidden_versions
            ]
        if found.get("kind") == "APIResourceList":
            found["resources"] = [r for r in found["resources"] if r["name"] not in self.hidden]
        if "items" in found:
            found["items"] = [self._rewrite(item) for item in found["items"] or []]
        return json.dumps(found).encode()

    def _rewrite(self, item: Object) -> Object:
        rewrite = self.rewritten.get(item["metadata"]["name"])
        return rewrite(item) if rewrite else item

    async def _stream(self, request: web.Request, upstream: aiohttp.ClientResponse) -> web.StreamResponse:
        plural = request.path.rpartition("/")[2]
        response = web.StreamResponse()
        await response.prepare(request)
        task = asyncio.current_task()
        assert task is not None
        self._watches[task] = (plural, response)
        try:
            async with aclosing(self._in_time(plural, upstream)) as chunks:
                async for chunk in chunks:
                    if plural not in self._muted and task not in self._frozen:
                        await response.write(chunk)
        finally:
            del self._watches[task]
            self._frozen.discard(task)
        return response

    async def _in_time(self, plural: str, upstream: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
        """Yield what comes, in its order, each piece as late as its kind was when it came."""
        clock = asyncio.get_running_loop().time
        came: asyncio.Queue[tuple[float, bytes] | None] = asyncio.Queue()

        async def take() -> None:
            try:
                async for chunk in upstream.content.iter_any():
                    came.put_nowait((clock() + self.late.get(plural, 0.0), chunk))
            finally:
                came.put_nowait(None)

        taking = asyncio.create_task(take(), name=TASK)
        try:
            while (piece := await came.get()) is not None:
                due, chunk = piece
                if (wait := due - clock()) > 0:
                    await asyncio.sleep(wait)
                yield chunk
            await taking
        finally:
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)


def _refusal(status: int, headers: dict[str, str]) -> web.Response:
    body = {"kind": "Status", "message": "because of the test"}
    return web.json_response(body, status=status, headers=headers)
