"""Sends spans by OTLP over HTTP. The only module that imports opentelemetry, and only when it is asked for.

As with every OpenTelemetry SDK, OTEL_EXPORTER_OTLP_ENDPOINT (or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT) says where to, and the SDK's
exporter reads headers, certificates, compression and timeout from OTEL_EXPORTER_OTLP_*, and OTEL_SERVICE_NAME and
OTEL_RESOURCE_ATTRIBUTES. Without an endpoint nothing is sent.
"""

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from accelerator_rollout import __version__
from accelerator_rollout.tracing.spans import Span
from accelerator_rollout.tracing.telling import Send

_log = logging.getLogger(__name__)

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_SPOKEN: Final = "http/protobuf"
_SERVICE: Final = "accelerator-rollout"


def sender(environment: Mapping[str, str]) -> Send | None:
    """Return what sends spans to where the environment says; None if it says nothing, or the packages are not there."""
    endpoint = next((environment[name] for name in _ENDPOINTS if environment.get(name)), None)
    disabled = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if endpoint is None or disabled or environment.get("OTEL_TRACES_EXPORTER", "otlp") != "otlp":
        return None
    protocol = next((environment[name] for name in _PROTOCOLS if environment.get(name)), _SPOKEN)
    if protocol != _SPOKEN:
        _log.warning("no traces are sent: %s is not spoken, only %s", protocol, _SPOKEN)
        return None
    try:
        return _sender(environment)
    except ImportError:
        _log.warning("no traces are sent to %s: install accelerator-rollout[otel]", endpoint)
        return None


def _sender(environment: Mapping[str, str]) -> Send:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - optional
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import ReadableSpan  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import SpanExportResult  # noqa: PLC0415
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope  # noqa: PLC0415
    from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags  # noqa: PLC0415

    name = environment.get("OTEL_SERVICE_NAME") or _SERVICE
    resource = Resource.create({"service.name": name, "service.version": __version__})
    scope = InstrumentationScope(_SERVICE, __version__)
    exporter = OTLPSpanExporter()

    def context(trace: str, span: str) -> SpanContext:
        flags = TraceFlags(TraceFlags.SAMPLED)
        return SpanContext(int(trace, 16), int(span, 16), is_remote=False, trace_flags=flags)

    def made(span: Span) -> ReadableSpan:
        return ReadableSpan(
            span.name,
            context=context(span.trace, span.id),
            parent=context(span.trace, span.parent) if span.parent else None,
            resource=resource,
            attributes=dict(span.attributes),
            status=Status(StatusCode.ERROR if span.failed else StatusCode.UNSET),
            start_time=_nanoseconds(span.start),
            end_time=_nanoseconds(span.end),
            instrumentation_scope=scope,
        )

    def send(spans: Sequence[Span]) -> bool:
        return exporter.export([made(span) for span in spans]) is SpanExportResult.SUCCESS

    return send


def _nanoseconds(at: datetime) -> int:
    return int(at.timestamp()) * 1_000_000_000
