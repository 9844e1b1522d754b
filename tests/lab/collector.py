"""An OTLP receiver for tests: what an operator sends by HTTP, as the requests that arrived."""

import gzip
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass(frozen=True, slots=True)
class Received:
    """A span as it arrived; times in nanoseconds since 1970."""

    trace: str
    id: str
    parent: str
    name: str
    start: int
    end: int
    attributes: tuple[tuple[str, str], ...]
    service: str


class Collector:
    """Listens on a loopback port; use as `async with`. While `refusing`, it answers 503."""

    def __init__(self) -> None:
        self.spans: list[Received] = []
        self.endpoint = ""
        self.refusing = False
        self.refused = 0
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=16 * 2**20)
        app.router.add_post("/v1/traces", self._take)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.endpoint = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        if self.refusing:
            self.refused += 1
            return web.Response(status=503)
        body = await request.read()
        if body.startswith(b"\x1f\x8b"):
            body = gzip.decompress(body)
        told: Any = ExportTraceServiceRequest.FromString(body)
        for resource in told.resource_spans:
            service = _texts(resource.resource.attributes).get("service.name", "")
            for scope in resource.scope_spans:
                self.spans += [_received(span, service) for span in scope.spans]
        answer = ExportTraceServiceResponse().SerializeToString()
        return web.Response(body=answer, content_type="application/x-protobuf")


def _received(span: Any, service: str) -> Received:
    return Received(
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.name,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        tuple(sorted(_texts(span.attributes).items())),
        service,
    )


def _texts(attributes: Any) -> dict[str, str]:
    return {one.key: one.value.string_value for one in attributes}
