"""What is played: the rollout and the two hazards, each once for a plain Deployment and once for us.

An act has a namespace of its own, begins with four pods that serve, and leaves all four devices free.
"""

import asyncio
from dataclasses import dataclass, replace
from typing import Final, Protocol

from accelerator_rollout.names import MANAGED_LABEL, PARKED_ANNOTATION
from lab.client import EventType, Object, PatchType
from lab.demo.facts import State
from lab.demo.manifests import NAME, NEW, OLD, REPLICAS, STRANGER, Way, bad, good, image, stranger
from lab.demo.stage import AT_ONCE, OTHER_TEAM, Stage
from lab.namespaces import make_namespace
from lab.recorder import Recorded
from lab.resources import ACCELERATOR_ROLLOUTS, DEPLOYMENTS, PODS

_START_SECONDS: Final = 30.0
_ROLLOUT_SECONDS: Final = 60.0
_CLEAR_SECONDS: Final = 20.0
PATIENCE: Final = (
    4  # seconds without progress after which a plain Deployment says so; Kubernetes' default is 600
)
_STILL_SECONDS: Final = 2.0  # how long we look that nothing more happens
_TIMED_OUT: Final = "ProgressDeadlineExceeded"


class Voice(Protocol):
    """How an act makes itself heard."""

    def say(self, text: str) -> None:
        """Say a sentence."""
        ...

    def narrate(self, *namespaces: str) -> None:
        """Tell what happens in these namespaces from now on; in none of them: be quiet."""
        ...


@dataclass(frozen=True, slots=True)
class Rolled:
    """A rollout that came to its end."""

    way: Way
    namespace: str
    first: Recorded  # the change of the pod template
    last: Recorded  # the last pod serves
    deleted: int  # pods that were told to leave
    status: Object  # of the workload's AcceleratorRollout at the end; empty without one

    @property
    def seconds(self) -> float:
        """From the change to four updated pods that serve."""
        return self.last.monotonic - self.first.monotonic


@dataclass(frozen=True, slots=True)
class Observed:
    """How a hazard stood when nothing moved any more, and what became of it."""

    way: Way
    namespace: str
    first: Recorded  # the change of the pod template
    deleted: int  # pods that were told to leave
    surplus: int  # pods beyond the replicas: surge pods
    waiting: int  # pods without a device, gated or open to the scheduler
    serving: int
    reason: str  # what the status said, in one word
    message: str  # and in a sentence
    held: bool  # the change of the template is parked: its Deployment is paused, with our annotation
    went_on: bool = False  # unaided, once the hazard was over
    deleted_in_all: int = 0  # pods that were told to leave until it was complete


class Act:
    """One workload in one namespace."""

    def __init__(self, stage: Stage, voice: Voice, way: Way, namespace: str) -> None:
        self.stage = stage
        self.voice = voice
        self.way = way
        self.namespace = namespace

    async def deploy(self, objects: list[Object]) -> None:
        """Apply the manifests and await that four pods serve, and that we have taken charge where we are asked to."""
        await make_namespace(self.stage.admin, self.namespace)
        await self.stage.admin.apply_manifest(objects, self.namespace)
        await self.stage.book.until(self._is_deployed, _START_SECONDS, f"the start of {self.namespace}")
        self.voice.say(f"{REPLICAS} pods serve {OLD}; all {REPLICAS} devices are in use, there is no spare")

    async def set_image(self, tag: str) -> Recorded:
        """Change the image in the pod template; return that change."""
        self.voice.say(f"the template's image becomes {tag}, as by kubectl set image")
        body = await self.stage.admin.patch(
            DEPLOYMENTS, NAME, image(tag), self.namespace, patch_type=PatchType.STRATEGIC
        )
        version = int(body["metadata"]["resourceVersion"])
        return await self.stage.recorder.until(
            lambda one: one.kind == "Deployment" and one.version == version, what="the new image"
        )

    async def completed(self, tag: str) -> None:
        """Await that four pods serve the image, no other is left, and the status says so."""
        await self.stage.book.until(
            lambda: self._is_complete(tag), _ROLLOUT_SECONDS, f"the end of the rollout in {self.namespace}"
        )

    async def one_serves(self, tag: str) -> None:
        """Await that at least one pod serves the image."""
        await self.stage.book.until(
            lambda: self.stage.book.serving(self.namespace, tag) > 0,
            _ROLLOUT_SECONDS,
            f"the first pod with {tag} in {self.namespace}",
        )

    async def clear(self) -> None:
        """Take the workload away and await that its devices are free."""
        self.voice.narrate()
        stage = self.stage
        for pod in stage.book.pods(self.namespace):
            await stage.admin.patch(
                PODS, pod.name, {"metadata": {"annotations": {**AT_ONCE}}}, self.namespace
            )
        if self.way is Way.OURS:
            await stage.admin.delete(ACCELERATOR_ROLLOUTS, NAME, self.namespace)
        await stage.admin.delete(DEPLOYMENTS, NAME, self.namespace)
        await stage.book.until(lambda: self._is_clear(self.namespace), _CLEAR_SECONDS, "the end of the pods")

    async def send_stranger(self) -> None:
        """Let another team's pod wait for a device: there is none, as ours are all in use."""
        await self.stage.admin.apply_manifest(stranger(), OTHER_TEAM)
        await self.stage.book.until(
            lambda: any(pod.blocked for pod in self.stage.book.pods(OTHER_TEAM)),
            _START_SECONDS,
            "the stranger's wait for a device",
        )
        self.voice.say("a stranger, a pod of another team, waits for any device")

    async def dismiss_stranger(self) -> None:
        """Let the stranger finish and await that its device is free."""
        self.voice.say("the stranger's work is done: it leaves")
        await self.stage.admin.delete(PODS, STRANGER, OTHER_TEAM)
        await self.stage.book.until(lambda: self._is_clear(OTHER_TEAM), _CLEAR_SECONDS, "the stranger's end")

    async def said(self, about: str, reason: str) -> Object:
        """Await that whoever is in charge gives this reason in a condition; return the condition."""
        await self.stage.book.until(
            lambda: self._says(about).get("reason") == reason,
            _ROLLOUT_SECONDS,
            f"{about} with {reason} in {self.namespace}",
        )
        return self._says(about)

    def observe(self, first: Recorded, said: Object) -> Observed:
        """How things stand."""
        pods = self.stage.book.pods(self.namespace)
        deployment = self._deployment()
        return Observed(
            way=self.way,
            namespace=self.namespace,
            first=first,
            deleted=self.told_to_leave(first),
            surplus=max(0, len(pods) - REPLICAS),
            waiting=sum(pod.state in {State.GATED, State.PENDING} for pod in pods),
            serving=self.stage.book.serving(self.namespace),
            reason=said.get("reason", ""),
            message=said.get("message", ""),
            held=bool(deployment["spec"].get("paused"))
            and PARKED_ANNOTATION in (deployment["metadata"].get("annotations") or {}),
        )

    def told_to_leave(self, first: Recorded) -> int:
        """How many pods were told to leave, or vanished, after that change."""
        leaving = self.stage.recorder.events(
            kind="Pod",
            namespace=self.namespace,
            predicate=lambda one: (
                one.version > first.version and (one.deleting or one.type is EventType.DELETED)
            ),
        )
        return len({one.uid for one in leaving})

    def rollout(self) -> Object:
        """The AcceleratorRollout as it stands; empty if there is none."""
        return self.stage.book.object("AcceleratorRollout", self.namespace, NAME) or {}

    # Inside

    def _says(self, about: str) -> Object:
        kind = "Deployment" if self.way is Way.PLAIN else "AcceleratorRollout"
        return self.stage.book.says(kind, self.namespace, NAME, about)

    def _deployment(self) -> Object:
        return self.stage.book.object("Deployment", self.namespace, NAME) or {}

    def _is_deployed(self) -> bool:
        if self.stage.book.serving(self.namespace) != REPLICAS:
            return False
        if self.way is Way.PLAIN:
            return (self._deployment().get("status") or {}).get("availableReplicas") == REPLICAS
        # Complete, or refused: either way it has been looked at, and our admission policy knows it.
        managed = MANAGED_LABEL in (self._deployment().get("metadata", {}).get("labels") or {})
        return managed and (self._says("Ready").get("status") == "True" or bool(self._says("Stalled")))

    def _is_complete(self, tag: str) -> bool:
        book = self.stage.book
        if len(book.pods(self.namespace)) != REPLICAS or book.serving(self.namespace, tag) != REPLICAS:
            return False
        deployment = self._deployment()
        status = deployment.get("status") or {}
        if status.get("observedGeneration") != deployment["metadata"]["generation"]:
            return False
        if self.way is Way.PLAIN:
            return status.get("availableReplicas") == REPLICAS
        resting = not deployment["spec"].get("paused")
        return self._says("Ready").get("status") == "True" and resting

    def _is_clear(self, namespace: str) -> bool:
        return not self.stage.book.pods(namespace) and not self.stage.book.allocated(namespace)


async def roll(stage: Stage, voice: Voice, way: Way, namespace: str) -> Rolled:
    """The main job: four replicas on four devices, a new image."""
    act = Act(stage, voice, way, namespace)
    await act.deploy(good(way))
    voice.narrate(namespace)
    first = await act.set_image(NEW)
    await act.completed(NEW)
    done = Rolled(
        way=way,
        namespace=namespace,
        first=first,
        last=stage.recorder.events(namespace=namespace, kind="Pod")[-1],
        deleted=act.told_to_leave(first),
        status=act.rollout().get("status") or {},
    )
    voice.say(f"done: {REPLICAS} pods serve {NEW}, {done.seconds:.1f} s after the change")
    await act.clear()
    return done


async def meet_stranger(stage: Stage, voice: Voice, way: Way, namespace: str) -> Observed:
    """First hazard: another team's pod waits for any device while we roll."""
    act = Act(stage, voice, way, namespace)
    plain = way is Way.PLAIN
    await act.deploy(good(way, patience=PATIENCE if plain else None))
    await act.send_stranger()
    voice.narrate(namespace, OTHER_TEAM)
    first = await act.set_image(NEW)
    await stage.book.until(
        lambda: any(pod.state is State.SERVING for pod in stage.book.pods(OTHER_TEAM)),
        _ROLLOUT_SECONDS,
        f"the stranger's turn in {namespace}",
    )
    if plain:
        seen = act.observe(first, await act.said("Progressing", _TIMED_OUT))
        voice.narrate()
        await act.dismiss_stranger()
        await act.one_serves(NEW)
        voice.say("the pod that waited has its device, and the Deployment goes on")
        seen = replace(seen, went_on=True)
    else:
        said = await act.said("DevicesReleased", "DeviceTaken")
        await asyncio.sleep(_STILL_SECONDS)  # that nothing more happens cannot be awaited
        seen = act.observe(first, said)
        voice.say("nothing more is touched: one pod is down, the others serve")
        voice.narrate()
        await act.dismiss_stranger()
        await act.completed(NEW)
        voice.say(f"the rollout has gone on unaided: {REPLICAS} pods serve {NEW}")
        seen = replace(seen, went_on=True, deleted_in_all=act.told_to_leave(first))
    await act.clear()
    return seen


async def apply_anti_pattern(stage: Stage, voice: Voice, way: Way, namespace: str) -> Observed:
    """Second hazard: the guideline's bad manifest, and a new image for it."""
    act = Act(stage, voice, way, namespace)
    plain = way is Way.PLAIN
    await act.deploy(bad(way, patience=PATIENCE if plain else None))
    voice.narrate(namespace)
    first = await act.set_image(NEW)
    if plain:
        said = await act.said("Progressing", _TIMED_OUT)
    else:
        said = await act.said("Stalled", "SurgeNotAllowed")
        voice.say(f"status Stalled=True, {said['reason']}: {said['message']}")
        await asyncio.sleep(_STILL_SECONDS)  # that nothing happens cannot be awaited
        voice.say("nothing was touched: the admission policy has parked the new template")
    seen = act.observe(first, said)
    await act.clear()
    return seen


async def stay(stage: Stage, voice: Voice, namespace: str) -> None:
    """Leave the good workload running, for people to look at and to play with."""
    await Act(stage, voice, Way.OURS, namespace).deploy(good(Way.OURS))
