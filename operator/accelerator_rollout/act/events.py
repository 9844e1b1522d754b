"""Events on our objects and on pods (events.k8s.io/v1): best effort, bounded, never in the way of an act."""

import logging
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from accelerator_rollout.act.client import Client
from accelerator_rollout.api.models import RolloutObject
from accelerator_rollout.clock import Clock
from accelerator_rollout.decide.outcome import Notice
from accelerator_rollout.errors import ActError
from accelerator_rollout.names import API_VERSION, GROUP, KIND
from accelerator_rollout.records import PodRecord

_log = logging.getLogger(__name__)

_NOTE: Final = 1024  # characters, the API's bound
_QUIET: Final = timedelta(minutes=10)  # the same words about the same object are said once in this time
_REMEMBERED: Final = 1000
_AT_MOST: Final = 300  # Events in one such time, over all objects: a flood tells nobody anything


@dataclass(frozen=True, slots=True)
class Subject:
    """What an Event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    @classmethod
    def rollout(cls, rollout: RolloutObject) -> "Subject":
        """Return our object as a subject."""
        return cls(API_VERSION, KIND, rollout.namespace, rollout.name, rollout.uid)

    @classmethod
    def pod(cls, pod: PodRecord) -> "Subject":
        """Return a pod as a subject."""
        return cls("v1", "Pod", pod.namespace, pod.name, pod.uid)


class Events:
    """Says each thing once in a while."""

    def __init__(self, client: Client, clock: Clock, instance: str) -> None:
        self._client, self._clock, self._instance = client, clock, instance
        self._said: OrderedDict[tuple[str, str, str], datetime] = OrderedDict()

    async def say(self, subject: Subject, notice: Notice) -> None:
        """Record the Event unless it was said lately. Failures are logged and forgotten."""
        now = self._clock()
        if not self._fresh((subject.uid, notice.reason, notice.message), now):
            return
        try:
            await self._client.record_event(subject.namespace, _event(subject, notice, now, self._instance))
        except ActError as error:
            _log.info("an Event could not be recorded: %s", error)

    def _fresh(self, said: tuple[str, str, str], now: datetime) -> bool:
        while self._said and (
            len(self._said) > _REMEMBERED or next(iter(self._said.values())) < now - _QUIET
        ):
            self._said.popitem(last=False)
        if said in self._said or len(self._said) >= _AT_MOST:
            return False
        self._said[said] = now
        return True


def _event(subject: Subject, notice: Notice, now: datetime, instance: str) -> Mapping[str, Any]:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "namespace": subject.namespace,
            "name": f"{subject.name[:220]}.{secrets.token_hex(8)}",
        },
        "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "type": notice.type.value,
        "reason": notice.reason,
        "action": notice.action,
        "note": notice.message[:_NOTE],
        "regarding": {
            "apiVersion": subject.api_version,
            "kind": subject.kind,
            "namespace": subject.namespace,
            "name": subject.name,
            "uid": subject.uid,
        },
        "reportingController": f"{GROUP}/operator",
        "reportingInstance": instance[:128],
    }
