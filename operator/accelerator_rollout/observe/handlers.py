"""Wires Kopf's events to us, and nothing else: only `on.event`, as every other kind of handler writes into objects."""

import itertools
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Final

import kopf

from accelerator_rollout.names import GROUP
from accelerator_rollout.observe.kinds import Kind, Served

Saw = Callable[[Kind, kopf.RawEvent], None]
Session = Callable[[], Awaitable[kopf.AiohttpSession]]

_CHUNK: Final = 500


def registry(served: Iterable[Served], saw: Saw, session: Session) -> kopf.OperatorRegistry:
    """Return the handlers: one for each kind that is served, and the login."""
    handlers = kopf.OperatorRegistry()
    for one in served:
        kopf.on.event(one.source.group, one.version, one.kind.value, registry=handlers, id=one.kind.value)(
            _event_handler(one.kind, saw)
        )

    @kopf.on.login(registry=handlers, id="login", errors=kopf.ErrorsMode.TEMPORARY, backoff=2)
    async def login(**_: Any) -> kopf.AiohttpSession:
        return await session()

    return handlers


def _event_handler(kind: Kind, saw: Saw) -> Callable[..., Awaitable[None]]:
    async def on_event(event: kopf.RawEvent, **_: Any) -> None:
        saw(kind, event)

    return on_event


def settings() -> kopf.OperatorSettings:
    """Return Kopf's settings: no peering, no Events, no writes, no giving up, and little done per event."""
    made = kopf.OperatorSettings()
    made.peering.standalone = True
    made.posting.enabled = False
    made.scanning.disabled = True  # kinds are discovered once, by us; needs no right to watch definitions
    made.watching.chunk_size = _CHUNK
    made.watching.reconnect_backoff = 0.1
    made.networking.error_backoffs = _Forever()
    made.queueing.idle_timeout = 0.5  # a worker per object stays that long; ten thousand come at start
    made.queueing.exit_timeout = 0.5
    made.process.ultimate_exiting_timeout = None  # it would kill the whole process, which is not Kopf's here
    made.persistence.finalizer = f"{GROUP}/kopf"
    made.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=f"kopf.{GROUP}", v1=False)
    made.persistence.diffbase_storage = _NoMemory()
    return made


class _Forever:
    """Delays between tries of a failed request: an outage of any length must not end the watches. Seconds."""

    def __iter__(self) -> Iterator[float]:
        return itertools.chain((0.2, 0.5, 1.0, 2.0), itertools.repeat(5.0))


class _NoMemory(kopf.DiffBaseStorage):
    """Keeps nothing of an object: Kopf would copy each one to compare it, and store it in the object itself."""

    def build(self, **_: Any) -> Any:
        return {}

    def fetch(self, **_: Any) -> Any:
        return None

    def store(self, **_: Any) -> None:
        """Write nothing."""
