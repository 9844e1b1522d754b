"""The demo tells the truth: what it checks holds on a real rollout, and each check fails when its promise is broken."""

import asyncio
import io
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from rich.console import Console

from lab.controlplane import ControlPlane
from lab.demo import checks, summary
from lab.demo.acts import Observed, Rolled, roll
from lab.demo.checks import Check
from lab.demo.journeys import Extremes, Journey, extremes, journeys
from lab.demo.manifests import EXAMPLES, REPLICAS, Way
from lab.demo.stage import Times, stage
from lab.demo.view import View
from lab.ledger import Device, Holder, Ledger
from lab.toolchain import find_kubectl


@dataclass(frozen=True, slots=True)
class Played:
    """One rollout as the demo plays it, and what it makes of it."""

    rolled: Rolled
    found: list[Journey]
    worst: Extremes
    overlaps: Sequence[object]
    lines: list[str]
    examples: str  # what the API server says to the example manifests
    parts: list[str]


@pytest.fixture(scope="module")
def control_plane() -> Iterator[ControlPlane]:
    """One of its own: the demo brings an operator that acts everywhere."""
    with ControlPlane() as started:
        yield started


@pytest.fixture(scope="module")
def played(control_plane: ControlPlane) -> Played:
    return asyncio.run(_play(control_plane))


async def _play(control_plane: ControlPlane) -> Played:
    said = io.StringIO()
    view = View(Console(file=said, width=80, highlight=False), begin=0.0)
    times = Times()
    async with stage(control_plane, times, view.say) as built:
        view.follow(built.book)
        with times.part("rollout"), view.watching(built.book, built.ledger, "rollout"):
            rolled = await roll(built, view, Way.OURS, "rollout")
        built.nodes.raise_errors()
        return Played(
            rolled=rolled,
            found=journeys(built.recorder, rolled),
            worst=extremes(built.recorder, rolled),
            overlaps=built.ledger.violations(),
            lines=said.getvalue().splitlines(),
            examples=await asyncio.to_thread(_dry_run, control_plane.kubeconfig),
            parts=[name for name, _ in times.parts],
        )


def _dry_run(kubeconfig: Path) -> str:
    """Apply the examples as their reader would, without a trace."""
    said = ""
    for what in (
        ("-k", EXAMPLES / "llm-inference-worker"),
        ("-f", EXAMPLES / "anti-pattern" / "workload.yaml"),
    ):
        command = [
            find_kubectl(),
            "apply",
            "--server-side",
            "--dry-run=server",
            "--warnings-as-errors",
            *what,
        ]
        done = subprocess.run(
            [str(word) for word in command],
            env={"KUBECONFIG": str(kubeconfig)},
            capture_output=True,
            text=True,
            check=False,
        )
        said += done.stdout + done.stderr
    return said


def wrong(found: Iterator[Check]) -> list[str]:
    return [f"{check.sentence}: {check.found}" for check in found if not check.holds]


def test_a_rollout_by_us_passes_every_check(played: Played) -> None:
    assert wrong(checks.of_rollout(played.rolled, played.found, played.worst)) == []
    assert played.overlaps == ()


def test_every_stage_of_every_replacement_is_measured(played: Played) -> None:
    assert len(played.found) == REPLICAS
    for one in played.found:
        assert None not in (*one.seconds(), one.total), one
        assert one.total == pytest.approx(sum(s for s in one.seconds() if s is not None))
        assert one.device == one.new_device  # there is no other that could be free


def test_an_opening_before_the_release_is_called_wrong(played: Played) -> None:
    first, *others = played.found
    too_early = replace(first, opened=first.told)
    never_seen = replace(first, freed=None)
    for broken in (too_early, never_seen):
        (said,) = wrong(checks.of_rollout(played.rolled, [broken, *others], played.worst))
        assert said.startswith("each gate opened only after the predecessor had ended")
        assert first.new is not None
        assert first.new.short in said


@pytest.mark.parametrize(
    ("promise", "broken"),
    [
        ("all 4 pods are updated", lambda p: (replace(p.rolled, status={}), p.found, p.worst)),
        ("as many pods were deleted", lambda p: (replace(p.rolled, deleted=5), p.found, p.worst)),
        ("each release was proven", lambda p: (p.rolled, _with_proof(p.found, "WaitElapsed"), p.worst)),
        ("never more than 4 device sets", lambda p: (p.rolled, p.found, replace(p.worst, device_sets=5))),
        ("at least 3 pods served", lambda p: (p.rolled, p.found, replace(p.worst, serving=2))),
    ],
)
def test_each_broken_promise_of_a_rollout_is_named(played: Played, promise: str, broken: object) -> None:
    assert callable(broken)
    (said,) = wrong(checks.of_rollout(*broken(played)))
    assert said.startswith(promise)


def _with_proof(found: list[Journey], proof: str) -> list[Journey]:
    return [replace(found[0], proof=proof), *found[1:]]


def test_what_is_said_of_a_replacement_follows_its_way(played: Played) -> None:
    first = played.found[0]
    assert first.new is not None
    told = [line.partition(" s  ")[2] for line in played.lines]
    story = [
        f"pod {first.old.short} is told to leave; it drains and still holds {first.device}",
        f"pod {first.old.short} has ended: its driver let go of {first.device}",
        f"{first.device} is free: its claim is no longer allocated",
        f"the gate of pod {first.new.short} opens",
        f"pod {first.new.short} serves v0.6.1 on {first.device}",
    ]
    assert [line for line in told if line in story] == story


def test_the_examples_are_accepted_without_a_warning(played: Played) -> None:
    assert "acceleratorrollout.accelerator-rollout.dev/llm-inference-worker" in played.examples
    assert "error" not in played.examples.lower()
    assert "warning" not in played.examples.lower()


def test_the_hazards_are_judged_by_what_was_observed(played: Played) -> None:
    base = Observed(
        way=Way.OURS,
        namespace="hazard",
        first=played.rolled.first,
        deleted=0,
        surplus=0,
        waiting=0,
        serving=REPLICAS,
        reason="",
        message="",
        held=False,
    )
    late = replace(base, way=Way.PLAIN, reason="ProgressDeadlineExceeded", waiting=1)
    taken = replace(
        base,
        deleted=1,
        serving=REPLICAS - 1,
        waiting=1,
        reason="DeviceTaken",
        message="device node-a/lpu-0 was taken",
        went_on=True,
        deleted_in_all=REPLICAS,
    )
    assert wrong(checks.of_stranger(late, taken)) == []
    assert len(wrong(checks.of_stranger(late, replace(taken, deleted=2)))) == 1
    assert len(wrong(checks.of_stranger(late, replace(taken, reason="Scheduling")))) == 1
    assert len(wrong(checks.of_stranger(late, replace(taken, went_on=False)))) == 1

    surging = replace(late, surplus=1)
    refused = replace(base, reason="SurgeNotAllowed", message="Set it to maxSurge 0", held=True)
    assert wrong(checks.of_anti_pattern(surging, refused)) == []
    assert len(wrong(checks.of_anti_pattern(surging, replace(refused, held=False)))) == 1
    assert len(wrong(checks.of_anti_pattern(surging, replace(refused, surplus=1)))) == 1
    assert len(wrong(checks.of_anti_pattern(late, refused))) == 1


def test_a_device_that_served_two_claims_is_called_wrong_and_counted(played: Played) -> None:
    ledger = Ledger()
    device = Device("lpu.example.dev", "node-a", "lpu-0")
    for uid in ("one", "two"):
        ledger.prepared("node-a", device, Holder(claim_uid=uid, claim_namespace="x", claim_name=uid))
    said = io.StringIO()
    console = Console(file=said, width=200)
    assert summary.show_checks(console, checks.of_ledger(ledger)) == 1
    assert "WRONG the ledger is clean" in said.getvalue()
    assert "was prepared for claim x/two" in said.getvalue()


def test_the_times_of_the_parts_are_told(played: Played) -> None:
    assert played.parts == ["installation and nodes", "operator", "rollout"]
