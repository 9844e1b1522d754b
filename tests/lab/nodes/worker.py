"""One pod on one simulated node, from being bound to being gone: what the kubelet's pod worker does with it.

The story is told top down in `PodWorker.run`: live until asked to end, stop the containers, unprepare, report the
terminal phase, delete the object. That order is the kubelet's, and the proof of release rests on it.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

import aiohttp

from lab.client import Api, ApiError, PatchType
from lab.nodes.claims import Claim, ClaimStore, claim_names
from lab.nodes.driver import DriverError, NodeDriver
from lab.nodes.faults import Behaviour, StartFailure, ending_of
from lab.nodes.status import (
    FIELD_MANAGER,
    Containers,
    Running,
    Terminated,
    Waiting,
    api_time,
    as_reported,
    evicted_status,
    gates_open,
    lost_in_reboot,
    pod_status,
    running_since,
    stopped,
    terminal_phase,
)
from lab.nodes.timing import Timing
from lab.resources import EVENTS, PODS

Json = dict[str, Any]

_TERMINAL: Final = frozenset({"Succeeded", "Failed"})
_log = logging.getLogger(__name__)


class Host(Protocol):
    """What a pod's worker needs from its node."""

    name: str
    api: Api
    claims: ClaimStore
    driver: NodeDriver
    timing: Timing

    async def awake(self) -> None:
        """Return once the node acts; a lost node does nothing."""

    def behaviour(self, pod: Mapping[str, Any]) -> Behaviour:
        """How this pod behaves here and now."""

    def address(self, pod_uid: str) -> str:
        """The pod's IP address."""


class PodWorker:
    """Drives one pod; `update` and `vanish` tell it what the API shows, `evict` that its kubelet wants it gone."""

    def __init__(self, host: Host, pod: Json, *, rebooted: bool = False) -> None:
        self._host = host
        self.pod = pod
        self._poke = asyncio.Event()
        self._end = asyncio.Event()
        self._vanished = False
        self._eviction: str | None = None
        self._delete_sent = False
        self._prepare_failures = 0
        self._start_failures = 0
        self._crashes = 0
        self._grace = float("inf")  # may only shrink (pod_workers)
        self._containers = Containers()
        self._shown: tuple[Containers, bool] | None = None
        self._adopted = False
        if running_since(pod) is not None:
            if rebooted:
                self._containers = lost_in_reboot(pod, now=api_time())
            else:
                # An earlier life of this program started it; its containers never stopped.
                self._containers = as_reported(pod)
                self._shown = (self._containers, gates_open(pod))
                self._adopted = True

    # What others tell it

    def update(self, pod: Json) -> None:
        """The API shows this state of the pod; an older one than we know is not looked at."""
        if _version(pod) >= _version(self.pod):
            self.pod = pod
            self._tell()

    def vanish(self) -> None:
        """The object is gone. The containers may not be: they end as the last state that we saw tells."""
        self._vanished = True
        self._tell()

    def evict(self, message: str) -> None:
        """The kubelet needs the room: end the pod as Failed, and leave the object."""
        self._eviction = message
        self._tell()

    def _tell(self) -> None:
        self._poke.set()
        if self._asked_to_end:
            self._end.set()

    @property
    def uid(self) -> str:
        """The pod's UID."""
        return str(self.pod["metadata"]["uid"])

    @property
    def name(self) -> str:
        """The pod's name."""
        return str(self.pod["metadata"]["name"])

    # The story

    async def run(self) -> None:
        """Everything this node ever does with the pod; returns when the object and the containers are gone."""
        await self._host.awake()
        if self._phase not in _TERMINAL:
            self._resume_claims()
            await self._live_until_asked()
            await self._stop_containers()
            await self._unprepare()
            await self._report_end()
        await self._delete_object()

    def _resume_claims(self) -> None:
        """Containers that run already hold their devices, also if the pod is to end before anything else happens."""
        if not self._adopted:
            return
        for name in claim_names(self.pod) or ():
            claim = self._host.claims.get((self._namespace, name))
            if claim is not None and claim.usable_by(self.uid):
                self._host.driver.resume(claim, self.uid, self.name)

    async def _live_until_asked(self) -> None:
        self._tell()
        live = asyncio.create_task(self._live(), name=f"live {self.name}")
        asked = asyncio.create_task(self._end.wait())
        try:
            await asyncio.wait({live, asked}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
            live.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await live

    async def _live(self) -> None:
        """Prepare and run; returns only when the pod is over by itself."""
        await self._show(self._containers)
        claims = await self._await_claims()
        await self._prepare(claims)
        self._containers = replace(self._containers, sandbox=True)
        while True:
            if not self._adopted:
                await self._start()
            self._adopted = False
            exit_code = await self._run()
            said = self._behaviour.crash_message if exit_code else ""
            ended = stopped(self._containers, exit_code=exit_code, now=api_time(), message=said)
            assert isinstance(ended.state, Terminated)
            policy = self.pod["spec"].get("restartPolicy", "Always")
            if policy == "Never" or (policy == "OnFailure" and exit_code == 0):
                self._containers = ended
                return
            self._crashes += 1
            await self._show(
                Containers(
                    state=Waiting("CrashLoopBackOff", "back-off restarting failed container"),
                    restarts=ended.restarts,
                    last=ended.state,
                    sandbox=True,
                )
            )
            timing = self._host.timing
            await asyncio.sleep(
                min(timing.crash_backoff * 2 ** (self._crashes - 1), timing.crash_backoff_limit)
            )
            self._containers = replace(self._containers, restarts=self._containers.restarts + 1)

    async def _await_claims(self) -> list[Claim]:
        """The claims, once each is allocated and reserved for this pod."""
        while True:
            names = claim_names(self.pod)
            missing = None
            found: list[Claim] = []
            for name in names or ():
                key = (self.pod["metadata"]["namespace"], name)
                claim = self._host.claims.get(key)
                if claim is None or not claim.usable_by(self.uid):
                    missing = key
                    break
                found.append(claim)
            if names is not None and missing is None:
                return found
            if missing is not None:
                self._host.claims.wake(missing, self._poke)
            await self._poked()

    async def _prepare(self, claims: list[Claim]) -> None:
        for claim in claims:
            while True:
                await self._host.awake()
                try:
                    await self._prepare_once(claim)
                    break
                except DriverError as error:
                    self._prepare_failures += 1
                    await self._show(replace(self._containers, state=Waiting()))
                    await self._event(
                        "Warning",
                        "FailedPrepareDynamicResources",
                        f"Failed to prepare dynamic resources: {error}",
                    )
                    await self._pause(self._host.timing.retry)

    async def _prepare_once(self, claim: Claim) -> None:
        behaviour = self._behaviour
        if self._prepare_failures < behaviour.prepare_failures:
            self._host.driver.tried(claim, self.uid)
            raise DriverError(
                f"NodePrepareResources failed for ResourceClaim {claim.name}: simulated failure "
                f"{self._prepare_failures + 1}"
            )
        await self._host.driver.prepare(claim, self.uid, self.name, behaviour)

    async def _start(self) -> None:
        """Get the containers running, through as many failed starts as the fault says."""
        while (failure := self._start_failure()) is not None:
            message = f'cannot start image "{self._image}" ({failure}, simulated)'
            if self._containers.state != Waiting(failure, message):
                await self._show(replace(self._containers, state=Waiting(failure, message)))
                await self._event("Warning", "Failed", message)
            self._start_failures += 1
            await self._pause(self._host.timing.retry)
        await asyncio.sleep(self._behaviour.start_seconds)
        await self._show(replace(self._containers, state=Running(since=api_time()), ready=False))

    def _start_failure(self) -> StartFailure | None:
        behaviour = self._behaviour
        return behaviour.start_failure if self._start_failures < behaviour.start_failures else None

    async def _run(self) -> int:
        """Run until the containers exit by themselves, and return their exit code."""
        began = time.monotonic()
        was_ready = self._containers.ready
        while True:
            behaviour = self._behaviour
            elapsed = time.monotonic() - began
            crashes = behaviour.crash_after_seconds is not None and self._crashes < behaviour.crash_times
            exit_at = behaviour.crash_after_seconds if crashes else behaviour.complete_after_seconds
            if exit_at is not None and elapsed >= exit_at:
                return 1 if crashes else 0
            ready = not behaviour.never_ready and (was_ready or elapsed >= behaviour.ready_seconds)
            await self._show(replace(self._containers, ready=ready))
            due = [
                at
                for at in (exit_at, None if ready or behaviour.never_ready else behaviour.ready_seconds)
                if at
            ]
            await self._poked(max(min(due) - elapsed, 0.001) if due else None)

    async def _stop_containers(self) -> None:
        """SIGTERM and, when the grace is over, SIGKILL. A pod that ended by itself has nothing left to stop."""
        if not isinstance(self._containers.state, Running):
            self._containers = stopped(self._containers, exit_code=0, now=api_time())
            return
        began = time.monotonic()
        while True:
            ending = ending_of(
                self._behaviour, self.pod, self._effective_grace(), grace_scale=self._host.timing.grace_scale
            )
            elapsed = time.monotonic() - began
            if ending.seconds is not None and elapsed >= ending.seconds:
                break
            await self._poked(None if ending.seconds is None else max(ending.seconds - elapsed, 0.001))
        self._containers = stopped(self._containers, exit_code=ending.exit_code, now=api_time())

    def _effective_grace(self) -> float:
        """Seconds of the API. Only a deletion that the kubelet saw as such overrides the spec's period."""
        metadata = self.pod["metadata"]
        given = metadata.get("deletionGracePeriodSeconds") if metadata.get("deletionTimestamp") else None
        if given is None:
            given = self.pod["spec"].get("terminationGracePeriodSeconds", 30)
        self._grace = min(self._grace, float(given))
        return self._grace

    async def _unprepare(self) -> None:
        """Give the devices back. As long as this fails nothing below is reached: no terminal phase, no deletion."""
        for uid in self._host.driver.claims_of(self.uid):
            while True:
                await self._host.awake()
                try:
                    await self._host.driver.unprepare(uid, self.uid, self._behaviour)
                    break
                except DriverError as error:
                    _log.info("pod %s on %s: %s", self.name, self._host.name, error)
                    await self._show(self._containers)
                    await self._pause(self._host.timing.retry)

    async def _report_end(self) -> None:
        if self._vanished:
            return
        if self._phase in _TERMINAL and self._eviction is None:
            phase = self._phase  # someone else, such as the pod garbage collector, has said so already
        else:
            phase = terminal_phase(self._containers)
        now = api_time()
        containers = replace(self._containers, sandbox=False)
        if self._eviction is not None and not self._deleting:
            patch = evicted_status(self.pod, containers, message=self._eviction, now=now)
        else:
            patch = pod_status(self.pod, containers, phase=phase, now=now)
        await self._write(patch)

    async def _delete_object(self) -> None:
        """Delete the object once it is being deleted and over; a completed pod stays until somebody deletes it."""
        while not self._vanished:
            if self._deleting and not self._delete_sent:
                self._delete_sent = True
                await self._host.awake()
                await self._call(
                    lambda: self._host.api.delete(
                        PODS, self.name, self._namespace, grace_seconds=0, uid=self.uid
                    )
                )
            else:
                await self._poked()

    # Small parts

    @property
    def _phase(self) -> str:
        return str(self.pod.get("status", {}).get("phase", "Pending"))

    @property
    def _namespace(self) -> str:
        return str(self.pod["metadata"]["namespace"])

    @property
    def _image(self) -> str:
        return str(self.pod["spec"]["containers"][0].get("image", ""))

    @property
    def _behaviour(self) -> Behaviour:
        return self._host.behaviour(self.pod)

    @property
    def _deleting(self) -> bool:
        return self.pod["metadata"].get("deletionTimestamp") is not None

    @property
    def _asked_to_end(self) -> bool:
        return self._vanished or self._deleting or self._eviction is not None or self._phase in _TERMINAL

    async def _poked(self, seconds: float | None = None) -> None:
        """Wait until something changed, at most so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._poke.wait()
        self._poke.clear()
        await self._host.awake()

    async def _pause(self, seconds: float) -> None:
        """A retry period: pokes do not cut it short, as with a kubelet's backoff."""
        await asyncio.sleep(seconds)
        await self._host.awake()

    async def _show(self, containers: Containers) -> None:
        """Report the containers' state if it differs from what was last reported."""
        self._containers = containers
        shown = (containers, gates_open(self.pod))
        if self._vanished or shown == self._shown:
            return
        phase = "Pending" if isinstance(containers.state, Waiting) and not containers.last else "Running"
        await self._host.awake()
        await self._write(
            pod_status(
                self.pod, containers, phase=phase, now=api_time(), address=self._host.address(self.uid)
            )
        )
        self._shown = shown

    async def _write(self, patch: Json) -> None:
        body = {"metadata": {"uid": self.uid}, **patch}
        changed = await self._call(
            lambda: self._host.api.patch(
                PODS,
                self.name,
                body,
                self._namespace,
                patch_type=PatchType.STRATEGIC,
                subresource="status",
                field_manager=FIELD_MANAGER,
            )
        )
        if changed is not None and _version(changed) >= _version(self.pod):
            self.pod = changed

    async def _event(self, kind: str, reason: str, message: str) -> None:
        now = api_time()
        involved = {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": self._namespace,
            "name": self.name,
            "uid": self.uid,
        }
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{self.name}.{time.time_ns():x}", "namespace": self._namespace},
            "involvedObject": involved,
            "type": kind,
            "reason": reason,
            "message": message,
            "source": {"component": "kubelet", "host": self._host.name},
            "reportingComponent": "kubelet",
            "reportingInstance": self._host.name,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        # A namespace that is going away takes no new events; nobody misses this one.
        with contextlib.suppress(ApiError):
            await self._host.api.create(EVENTS, body, self._namespace)

    async def _call(self, request: Callable[[], Awaitable[Json]]) -> Json | None:
        """Send it until the server has taken or refused it; None when the pod of this UID is not there any more.

        Never cancelled half-way: a cancelled request may still arrive, after one that was sent later.
        """

        async def until_answered() -> Json | None:
            pause = 0.1
            while True:
                try:
                    return await request()
                except ApiError as error:
                    if error.status in {404, 409}:
                        return None
                    if error.status < 500 and error.status != 429:
                        raise
                except (aiohttp.ClientError, TimeoutError) as error:
                    _log.info("pod %s on %s: %r, trying again", self.name, self._host.name, error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 2.0)

        task = asyncio.ensure_future(until_answered())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait({task}, timeout=5)
            task.cancel()
            raise


def _version(pod: Mapping[str, Any]) -> int:
    return int(pod["metadata"].get("resourceVersion") or 0)
