"""What cannot be seen again is stored at once; the rest in good time; nothing if nothing differs."""

from typing import Any

import pytest

from accelerator_rollout.api.conditions import Condition, ConditionStatus, ConditionType
from accelerator_rollout.api.models import Proof, Replacement, RolloutStatus, Stage
from accelerator_rollout.decide.patience import NEWS, PROOF, patience
from builders import at, device, entry, pod

GONE = entry(pod("worker-2"), device(2), stage=Stage.RELEASING)


def status(*entries: Replacement, **over: Any) -> RolloutStatus:
    return RolloutStatus(adopted_at=at(-600), observed_generation=1, replacements=entries, **over)


def changed(**over: Any) -> Replacement:
    return GONE.model_copy(update=over)


def told(kind: ConditionType, holds: ConditionStatus, reason: str = "Because") -> RolloutStatus:
    one = Condition(
        type=kind, status=holds, observed_generation=1, last_transition_time=at(0), reason=reason, message=""
    )
    return status(conditions=(one,))


YES, NO = ConditionStatus.TRUE, ConditionStatus.FALSE


def test_nothing_new_is_nothing_to_wait_for() -> None:
    assert patience(status(GONE), status(GONE)) == 0


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        pytest.param(status(), status(GONE), id="a departure"),
        pytest.param(status(GONE), status(changed(claims=())), id="what it held"),
        pytest.param(status(GONE), status(changed(boot_id="other")), id="where it ran"),
        pytest.param(status(GONE), status(changed(stage=Stage.SCHEDULING)), id="an open gate"),
        pytest.param(
            status(changed(replacement_pod_uid="a")),
            status(changed(replacement_pod_uid="b")),
            id="another successor",
        ),
        pytest.param(
            told(ConditionType.READY, NO), told(ConditionType.READY, YES), id="what programs wait for"
        ),
        pytest.param(told(ConditionType.READY, NO), told(ConditionType.STALLED, YES), id="a stop"),
        pytest.param(status(), status().model_copy(update={"observed_generation": 2}), id="a generation"),
    ],
)
def test_what_cannot_be_seen_again_is_stored_at_once(stored: RolloutStatus, wanted: RolloutStatus) -> None:
    assert patience(stored, wanted) == 0


@pytest.mark.parametrize(
    ("wanted", "seconds"),
    [
        (status(changed(proof=Proof.KUBELET_TERMINAL_PHASE)), PROOF),
        (status(changed(proof=Proof.KUBELET_TERMINAL_PHASE, released_at=at(0), stage=Stage.GATED)), PROOF),
        (status(changed(message="waits")), NEWS),
        (status(changed(replacement_pod_uid="a")), NEWS),
        (status(GONE, ready_replicas=3), NEWS),
        (status(), NEWS),
    ],
)
def test_news_wait_a_moment(wanted: RolloutStatus, seconds: float) -> None:
    assert patience(status(GONE), wanted) == seconds


def test_another_reason_of_the_same_condition_is_news() -> None:
    stored, wanted = (told(ConditionType.READY, NO, reason) for reason in ("Gated", "Scheduling"))
    assert patience(stored, wanted) == NEWS
