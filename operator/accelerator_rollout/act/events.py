"""Events on our objects and on pods (events.k8s.io/v1): best effort, bounded, never in the way of an act.

The same reason about the same object within minutes is one series, as in Kubernetes' own recorders (KEP-383): the Event
counts on, and keeps its first words, which the API server lets nobody change. The newest ones stand in the conditions.
"""

import logging
import secrets
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from accelerator_rollout.act.client import Client
from accelerator_rollout.api.models import RolloutObject, Unreadable
from accelerator_rollout.clock import Clock, micro_time
from accelerator_rollout.decide.outcome import EventType, Notice
from accelerator_rollout.decide.reasons import Announcement, Trouble
from accelerator_rollout.errors import ActError, GoneError
from accelerator_rollout.names import API_VERSION, GROUP, KIND
from accelerator_rollout.records import PodRecord

_log = logging.getLogger(__name__)

_NOTE: Final = 1024  # characters, the API's bound
_ENDS: Final = timedelta(minutes=6)  # a series ends when nothing was added for so long, as in client-go
_WRITTEN: Final = timedelta(minutes=1)  # a series that goes on is written at least so often
_REMEMBERED: Final = 1000
_WITHIN: Final = timedelta(minutes=10)
_AT_MOST: Final = 300  # writes in that time, over all objects: a flood tells nobody anything
_NORMAL: Final = 200  # of these; the rest is for warnings

_POD_ALONE: Final = frozenset((str(Announcement.GATE_OPENED),))
_POD_TOO: Final = frozenset((str(Announcement.REPLACING), *map(str, Trouble)))


@dataclass(frozen=True, slots=True)
class Subject:
    """What an Event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    @classmethod
    def rollout(cls, rollout: RolloutObject | Unreadable) -> "Subject":
        """Return our object as a subject."""
        return cls(API_VERSION, KIND, rollout.namespace, rollout.name, rollout.uid)

    @classmethod
    def pod(cls, pod: PodRecord) -> "Subject":
        """Return a pod as a subject."""
        return cls("v1", "Pod", pod.namespace, pod.name, pod.uid)

    def reference(self) -> Mapping[str, str]:
        """Return it as the API refers to it."""
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
        }


@dataclass(slots=True)
class _Series:
    """An Event that was written, and how often its like was to be said since."""

    name: str
    last: datetime
    written_at: datetime
    count: int = 1
    written: int = 1  # the count that the Event has

    def due(self, now: datetime) -> bool:
        """Whether to write the count: each time it doubles, and once a minute while it grows."""
        return self.count >= 2 * self.written or now - self.written_at >= _WRITTEN


class Events:
    """Says each thing once in a while, and counts on meanwhile. A restarted operator begins new series."""

    def __init__(self, client: Client, clock: Clock, instance: str) -> None:
        self._client, self._clock, self._instance = client, clock, instance
        self._series: OrderedDict[tuple[str, ...], _Series] = OrderedDict()
        self._writes: deque[datetime] = deque()

    async def tell(self, rollout: RolloutObject, notice: Notice) -> None:
        """Record the Event of a decision where people look for it: at our object, at the pod, or at both."""
        own = Subject.rollout(rollout)
        if notice.pod is None:
            await self.say(own, notice)
            return
        pod = Subject("v1", "Pod", rollout.namespace, notice.pod.name, notice.pod.uid)
        if notice.reason not in _POD_ALONE:
            await self.say(own, notice, pod)
        if notice.reason in _POD_ALONE | _POD_TOO:
            await self.say(pod, notice, own)

    async def say(self, subject: Subject, notice: Notice, related: Subject | None = None) -> None:
        """Record the Event, or count it in its series. Failures are logged and forgotten."""
        now = self._clock()
        key = (subject.uid, related.uid if related else "", notice.type, notice.reason, notice.action)
        series = self._running(key, now)
        try:
            if series is None:
                await self._begin(key, subject, notice, related, now)
                return
            series.count, series.last = series.count + 1, now
            if not series.due(now) or not self._may_write(notice, now):
                return
            series.written, series.written_at = series.count, now
            await self._client.count_event(subject.namespace, series.name, series.count, micro_time(now))
        except GoneError:  # the API server keeps Events for an hour; it may also be that none was written
            await self._anew(key, subject, notice, related, now)
        except ActError as error:
            _log.info("an Event could not be recorded: %s", error)

    def _running(self, key: tuple[str, ...], now: datetime) -> _Series | None:
        while self._series and (
            len(self._series) > _REMEMBERED or next(iter(self._series.values())).last < now - _ENDS
        ):
            self._series.popitem(last=False)
        series = self._series.get(key)
        if series is not None:
            self._series.move_to_end(key)
        return series

    async def _begin(
        self, key: tuple[str, ...], subject: Subject, notice: Notice, related: Subject | None, now: datetime
    ) -> None:
        if not self._may_write(notice, now):
            return
        name = f"{subject.name[:220]}.{secrets.token_hex(8)}"
        self._series[key] = _Series(name, last=now, written_at=now)
        event = _event(subject, notice, related, now, self._instance)
        event["metadata"] = {"namespace": subject.namespace, "name": name}
        await self._client.record_event(subject.namespace, event)

    async def _anew(
        self, key: tuple[str, ...], subject: Subject, notice: Notice, related: Subject | None, now: datetime
    ) -> None:
        self._series.pop(key, None)
        try:
            await self._begin(key, subject, notice, related, now)
        except ActError as error:
            _log.info("an Event could not be recorded: %s", error)

    def _may_write(self, notice: Notice, now: datetime) -> bool:
        while self._writes and self._writes[0] < now - _WITHIN:
            self._writes.popleft()
        if len(self._writes) >= (_NORMAL if notice.type is EventType.NORMAL else _AT_MOST):
            return False
        self._writes.append(now)
        return True


def _event(
    subject: Subject, notice: Notice, related: Subject | None, now: datetime, instance: str
) -> dict[str, Any]:
    told: dict[str, Any] = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "eventTime": micro_time(now),
        "type": notice.type.value,
        "reason": notice.reason,
        "action": notice.action,
        "note": notice.message[:_NOTE],
        "regarding": subject.reference(),
        "reportingController": f"{GROUP}/operator",
        "reportingInstance": instance[:128],
    }
    return told | ({"related": related.reference()} if related else {})
