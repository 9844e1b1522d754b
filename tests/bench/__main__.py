"""`python -m bench`: measures what the operator costs, tells it, and fails if a goal is missed."""

import argparse
import asyncio
import os
import signal
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.figures import Figure, quantile, ratio_of_medians, report
from bench.idle import idle
from bench.many import many
from bench.place import Place, place
from bench.rollouts import openings, totals
from bench.startup import crowd, start_up
from bench.work import milliseconds
from lab.controlplane import ControlPlane, ControlPlaneError
from lab.operator_process import OperatorProcessError
from lab.toolchain import ToolchainError, ensure_control_plane

PARTS: Final = ("work", "totals", "openings", "idle", "many", "startup")
FEW: Final = 100  # unrelated claims
IDLE_SECONDS: Final = 60.0


def say(text: str) -> None:
    """Tell how it goes; the figures come last."""
    print(text, flush=True)  # noqa: T201 - this is the command line


async def measure(here: Place, options: argparse.Namespace) -> list[Figure]:
    """Measure the parts that were asked for."""
    figures: list[Figure] = []
    if "work" in options.only:
        say(f"A decision beside {FEW} and {options.claims} unrelated claims")
        figures += _work(options.claims)
    if "totals" in options.only:
        say("Rollouts of 4 pods whose teardown takes 2 s, by turns ours and by a plain Deployment")
        figures += await _totals(here, options.rounds)
    if "openings" in options.only:
        say("Openings: ours, by a bare loop, and by a bare loop that makes the same reads")
        figures += await _openings(here, options.rounds)
    if "idle" in options.only:
        say(f"An idle operator, for {IDLE_SECONDS:g} s")
        figures += await _idle(here)
    if "many" in options.only:
        say(f"{options.rollouts} rollouts at once")
        figures += await _many(here, options.rollouts)
    if "startup" in options.only:
        say(f"A start with {options.claims} unrelated claims")
        figures += await _startup(here, options.claims)
    here.ledger.assert_clean()
    return figures


def _work(claims: int) -> list[Figure]:
    few, many = milliseconds(FEW, claims)
    return [
        Figure(f"event and decision, {FEW} unrelated claims", few, "ms"),
        Figure(f"event and decision, {claims} unrelated claims", many, "ms"),
        Figure("many / few", many / few, "", 1.5),
    ]


async def _totals(here: Place, rounds: int) -> list[Figure]:
    found = await totals(here, rounds, say)
    return [
        Figure("rollout, ours (median)", statistics.median(found.ours), "s"),
        Figure("rollout, native (median)", statistics.median(found.native), "s"),
        Figure("rollout, ours / native", ratio_of_medians(found.ours, found.native), "", 1.05),
        Figure("writes per replacement", found.writes, "", None, "Events and the Lease not counted"),
        Figure("of these to our own object", found.status_writes, ""),
    ]


async def _openings(here: Place, rounds: int) -> list[Figure]:
    found = await openings(here, rounds, say)
    figures: list[Figure] = []
    for name, values in (
        ("ours", found.ours),
        ("bare", found.bare),
        ("bare with the same reads", found.confirming),
    ):
        for share in (0.5, 0.99):
            title = f"release to opening, {name}, p{share * 100:g}"
            figures.append(Figure(title, 1000 * quantile(values, share), "ms", None, f"of {len(values)}"))
    for share, goal in ((0.5, 1.5), (0.99, 3.0)):
        ratio = quantile(found.ours, share) / quantile(found.confirming, share)
        title = f"release to opening, ours / same reads, p{share * 100:g}"
        figures.append(Figure(title, ratio, "", goal))
    return figures


async def _idle(here: Place) -> list[Figure]:
    found = await idle(here, IDLE_SECONDS)
    by_verb = ", ".join(f"{verb} {count:g}" for verb, count in sorted(found.requests.items()))
    within = f"in {IDLE_SECONDS:g} s"
    return [
        Figure("memory of the idle operator", found.megabytes, "MB", 120),
        Figure(f"its processor time {within}", found.cpu_seconds, "s"),
        Figure(f"its requests {within}", sum(found.requests.values()), "", None, by_verb),
        Figure(f"its writes {within}", found.writes, "", 0, "renewals of the Lease not counted"),
        Figure(f"its renewals of the Lease {within}", found.renewals, ""),
    ]


async def _many(here: Place, count: int) -> list[Figure]:
    found = await many(here, count)
    figures = [
        Figure("a rollout of 2 pods alone", found.alone, "s"),
        Figure(f"{count} of them at once", found.together, "s"),
        Figure("memory of the operator then", found.megabytes, "MB"),
    ]
    for share in (0.5, 0.99):
        title = f"release to opening, {count} at once, p{share * 100:g}"
        figures.append(
            Figure(title, 1000 * quantile(found.openings, share), "ms", None, f"of {len(found.openings)}")
        )
    return figures


async def _startup(here: Place, claims: int) -> list[Figure]:
    empty, _ = await start_up(here)
    await crowd(here, claims)
    full, memory = await start_up(here)
    return [
        Figure("start to ready, no unrelated claims", empty, "s"),
        Figure(f"start to ready, {claims} unrelated claims", full, "s", 15),
        Figure(f"its memory with {claims} unrelated claims", memory, "MB"),
    ]


async def _measured(control_plane: ControlPlane, options: argparse.Namespace) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="accelerator-rollout-bench-") as folder:
        async with place(control_plane, Path(folder)) as here:
            return await measure(here, options)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; return 0 if every goal was met, 1 if not or if something could not be brought up, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", choices=PARTS, nargs="+", default=PARTS, help="measure these parts alone")
    parser.add_argument("--rounds", type=int, default=5, help="rollouts of each way, by turns")
    parser.add_argument("--claims", type=int, default=10_000, help="unrelated claims at the start")
    parser.add_argument("--rollouts", type=int, default=100, help="how many at once")
    options = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end in order, as with Ctrl-C
    try:
        binaries = ensure_control_plane()
        with ControlPlane(f"bench-{os.getpid()}", binaries=binaries) as control_plane:
            text, good = report(asyncio.run(_measured(control_plane, options)))
    except (ControlPlaneError, ToolchainError, OperatorProcessError, TimeoutError) as error:
        print(f"bench: {error}", file=sys.stderr)  # noqa: T201 - this is the command line
        return 1
    except KeyboardInterrupt:
        return 130
    say(f"\n{text}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
