"""A run on a real control plane replays without it: from what was seen then, the same is decided now, and no promise breaks.

tests/cluster/walks/test_recorded_run.py makes the recordings. A change of the decision on purpose needs them made anew.
"""

from pathlib import Path

import pytest

from accelerator_rollout.decide.invariants import violations
from accelerator_rollout.decide.plan import plan
from lab.recording import Decision, compacted, read, to_line, told

RECORDINGS = sorted((Path(__file__).parent / "recorded").glob("*.json"))
EACH = pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.stem)

STEPS = {
    "daemonset": {"AddFinalizer", "EvictPod", "OpenGate"},
    "deployment": {"AddFinalizer", "ManageDeployment", "PauseDeployment", "UnpauseDeployment", "OpenGate"},
    "statefulset": {"AddFinalizer", "EvictPod", "OpenGate"},
}


def decisions(recording: Path) -> list[Decision]:
    return list(read(recording.read_text()))


def test_there_is_a_recording_of_each_kind() -> None:
    assert {path.stem for path in RECORDINGS} == set(STEPS)


@EACH
def test_each_decision_comes_out_again(recording: Path) -> None:
    for number, decision in enumerate(decisions(recording)):
        again = plan(decision.snapshot, decision.now)
        assert told(again) == decision.told, f"decision {number} at {decision.now}"
        assert violations(decision.snapshot, again, decision.now) == ()


@EACH
def test_a_recording_has_every_step_of_a_rollout_with_holds(recording: Path) -> None:
    seen = {action[0] for decision in decisions(recording) for action in decision.told["actions"]}
    assert seen >= STEPS[recording.stem] | {"HoldClaim", "EndHold"}


@EACH
def test_nothing_is_lost_between_writing_and_reading(recording: Path) -> None:
    kept = decisions(recording)
    lines = [to_line(d.snapshot, plan(d.snapshot, d.now), d.now) for d in kept]
    assert list(read(compacted(lines))) == kept
