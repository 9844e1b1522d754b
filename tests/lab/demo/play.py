"""The order of the acts, what is told between them, and the verdict."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from lab.client import ApiError
from lab.controlplane import ControlPlane
from lab.demo import checks, summary
from lab.demo.acts import Voice, apply_anti_pattern, meet_stranger, roll, stay
from lab.demo.checks import Check
from lab.demo.journeys import extremes, journeys
from lab.demo.manifests import IMAGE, NAME, NEW, REPLICAS, Way
from lab.demo.stage import OTHER_TEAM, Stage, Times, stage
from lab.demo.view import View

T = TypeVar("T")
_Act = Callable[[Stage, Voice, Way, str], Awaitable[T]]

_PLAYGROUND: Final = "demo"  # the namespace of what is left up


async def play(control_plane: ControlPlane, view: View, times: Times, *, keep: bool) -> int:
    """Play and judge everything; return 0 if every check holds, else 1. With `keep`, stay up until Ctrl-C."""
    async with stage(control_plane, times, view.say) as built:
        view.follow(built.book)
        show = _Show(built, view, times)
        try:
            await show.play()
        except (ApiError, TimeoutError) as error:
            show.give_up(str(error))
        control_plane.check()
        failed = show.judge()
        if keep:
            await show.stay_up()
        return 1 if failed else 0


class _Show:
    """One evening: what has been played and what was found."""

    def __init__(self, built: Stage, view: View, times: Times) -> None:
        self._stage = built
        self._view = view
        self._times = times
        self._checks: list[Check] = []

    async def play(self) -> None:
        """Play all acts, and tell of each pair side by side."""
        await self._rollout()
        await self._stranger()
        await self._anti_pattern()

    def give_up(self, error: str) -> None:
        """Tell of an act that did not get to its end."""
        self._view.narrate()
        self._checks.append(Check("every act came to its end", holds=False, found=error))
        operator = self._stage.operator
        self._view.say(f"the operator's last words:\n{operator.log_tail()}")

    def judge(self) -> int:
        """Tell the verdict and the times; return how many checks do not hold."""
        self._checks += checks.of_ledger(self._stage.ledger)
        trouble = "; ".join(repr(error) for error in self._stage.nodes.errors)
        self._checks.append(Check("the simulated nodes had no trouble of their own", not trouble, trouble))
        operator = self._stage.operator
        self._checks.append(
            Check(
                "the operator ran to the end",
                operator.is_running,
                f"it ended with exit code {operator.exit_code}",
            )
        )
        self._view.title("Was everything as it should be?")
        summary.show_times(self._view.console, self._times)
        failed = summary.show_checks(self._view.console, self._checks)
        said = "All of it." if not failed else f"No: {failed} of {len(self._checks)} checks do not hold."
        self._view.say(said, style="bold green" if not failed else "bold red")
        return failed

    async def stay_up(self) -> None:
        """Leave a workload running and tell how to reach it, until Ctrl-C or SIGTERM."""
        stage, view = self._stage, self._view
        view.title("Left up for you, until Ctrl-C")
        try:
            await stay(stage, view, _PLAYGROUND)
        except (
            TimeoutError
        ) as error:  # after a failure the devices may still be in use: that is what to look at
            view.say(f"the workload does not come up: {error}")
        for line in (
            f'eval "$({sys.executable} -m lab env --name {stage.control_plane.name})"',
            f"kubectl --namespace {_PLAYGROUND} get acceleratorrollouts,pods,resourceclaims",
            f"kubectl --namespace {_PLAYGROUND} set image deployment/{NAME} vllm={IMAGE}:{NEW}",
            f"kubectl --namespace {_PLAYGROUND} get acceleratorrollout {NAME} --watch",
            f"curl {stage.operator.url}/metrics",
            f"logs, recording, ledger: {stage.control_plane.folder}",
        ):
            view.console.print(f"  {line}", soft_wrap=True)
        done = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, done.set)
        await done.wait()

    # The three pairs

    async def _rollout(self) -> None:
        ours = await self._act(
            "A new image, rolled out by an AcceleratorRollout",
            "The guideline's good manifest with the gate's label, and the smallest AcceleratorRollout.",
            roll,
            Way.OURS,
        )
        plain = await self._act(
            "The same, rolled out by a plain Deployment",
            "Neither label nor AcceleratorRollout.",
            roll,
            Way.PLAIN,
        )
        recorder = self._stage.recorder
        our_way, plain_way = journeys(recorder, ours), journeys(recorder, plain)
        our_worst, plain_worst = extremes(recorder, ours), extremes(recorder, plain)
        self._view.title(f"{REPLICAS} replicas on {REPLICAS} devices: where the seconds went")
        console = self._view.console
        summary.show_journeys(console, our_way)
        summary.show_proofs(console, our_way)
        summary.show_comparison(console, [(plain, plain_way, plain_worst), (ours, our_way, our_worst)])
        self._checks += checks.of_rollout(ours, our_way, our_worst)
        self._checks += checks.of_plain_rollout(plain)

    async def _stranger(self) -> None:
        hazard = "Hazard 1, a stranger waits for a device"
        plain, ours = await self._both(
            hazard, "The good manifest, and a pod of another team in the queue.", meet_stranger
        )
        self._view.title(f"{hazard}: side by side, while it has the device")
        summary.show_stranger(self._view.console, plain, ours)
        self._checks += checks.of_stranger(plain, ours)

    async def _anti_pattern(self) -> None:
        hazard = "Hazard 2, the guideline's bad manifest"
        plain, ours = await self._both(
            hazard, "maxSurge 1, maxUnavailable 0, no preStop, 30 s of grace, no budget.", apply_anti_pattern
        )
        self._view.title(f"{hazard}: side by side")
        summary.show_anti_pattern(self._view.console, plain, ours)
        self._checks += checks.of_anti_pattern(plain, ours)

    async def _both(self, hazard: str, about: str, act: _Act[T]) -> tuple[T, T]:
        return (
            await self._act(f"{hazard}: plain Deployment", about, act, Way.PLAIN),
            await self._act(f"{hazard}: AcceleratorRollout", about, act, Way.OURS),
        )

    async def _act(self, title: str, about: str, act: _Act[T], way: Way) -> T:
        self._view.title(title, about)
        name = _NAMES[act]
        namespace = f"{name}-{_SUFFIX[way]}"
        watched = self._view.watching(self._stage.book, self._stage.ledger, namespace, OTHER_TEAM)
        with self._times.part(f"{name.replace('-', ' ')}, {way}"), watched:
            return await act(self._stage, self._view, way, namespace)


_NAMES: Final[Mapping[object, str]] = {
    roll: "rollout",
    meet_stranger: "stranger",
    apply_anti_pattern: "bad-manifest",
}
_SUFFIX: Final = {Way.PLAIN: "plain", Way.OURS: "ours"}
