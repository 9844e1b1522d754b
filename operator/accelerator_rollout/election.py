"""Puts leadership together as the settings ask for it: whether there is an election, where its Lease is, and who we are."""

import logging
import os
import platform
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from accelerator_rollout.act.leases import ApiLeases, Place
from accelerator_rollout.clock import utc_now
from accelerator_rollout.config import Settings
from accelerator_rollout.control.leadership import AlwaysLeader, Elector, Terms
from accelerator_rollout.errors import StartError
from accelerator_rollout.observe.login import LoadConfiguration

_log = logging.getLogger(__name__)

_OWN_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, slots=True)
class Election:
    """Who decides whether we act; `place` and `leases` are None where nobody else is asked."""

    leadership: AlwaysLeader | Elector
    place: Place | None = None
    leases: ApiLeases | None = None

    async def close(self) -> None:
        """End the connection to the Lease."""
        if self.leases is not None:
            await self.leases.close()


def election(
    settings: Settings, load: LoadConfiguration, counted: Callable[[str, str, str], None]
) -> Election:
    """Return what the settings ask for. Raises StartError if they ask for an election and say not where."""
    place = place_of(settings)
    if place is None:
        _log.info("leader election is off: no second operator may run beside this one")
        return Election(AlwaysLeader())
    terms = Terms(
        settings.lease_duration_seconds, settings.lease_renew_deadline_seconds, settings.lease_retry_seconds
    )
    # A request that hangs must leave time for another one before the deadline.
    timeout = min(settings.request_timeout_seconds, (terms.deadline - terms.retry) / 2)
    leases = ApiLeases(load, place, utc_now, counted, timeout)
    identity = f"{platform.node() or 'operator'}_{secrets.token_hex(4)}"
    _log.info("%s is a candidate for the Lease %s/%s", identity, place.namespace, place.name)
    return Election(Elector(leases, identity, terms), place, leases)


def place_of(
    settings: Settings, environment: Mapping[str, str] = os.environ, own: Path = _OWN_NAMESPACE
) -> Place | None:
    """Return where the Lease is; None without an election. Raises StartError."""
    if settings.leader_election == "off":
        return None
    namespace = settings.lease_namespace or environment.get("POD_NAMESPACE") or _read(own)
    if namespace:
        return Place(namespace, settings.lease_name)
    if settings.leader_election == "on":
        raise StartError("--leader-election=on needs --lease-namespace where the operator runs in no pod")
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
