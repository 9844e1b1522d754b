"""Series tell of objects and never of pods, and go away with their object."""

from dataclasses import replace
from typing import Any

from accelerator_rollout.api.conditions import ConditionStatus, ConditionType, set_condition
from accelerator_rollout.api.models import RolloutObject
from accelerator_rollout.decide.actions import EvictPod
from accelerator_rollout.decide.outcome import Plan, ReleaseTime, StageTime
from accelerator_rollout.decide.snapshot import Freshness, Snapshot
from accelerator_rollout.metrics import Metrics
from accelerator_rollout.observe import project
from accelerator_rollout.observe.interests import Key
from unit.observe import objects as o


def snapshot(name: str) -> Snapshot:
    found = project.rollout(o.rollout(name))
    assert isinstance(found, RolloutObject)
    empty: dict[str, Any] = dict.fromkeys(
        ("rivals", "replica_sets", "pods", "vanished", "slices", "taint_rules", "budgets"), ()
    )
    return Snapshot(
        rollout=found,
        workload=None,
        claims={},
        holders={},
        nodes={},
        freshness=Freshness.FRESH,
        watched_since=None,
        **empty,
    )


def plan(reason: str = "Rolling", **more: Any) -> Plan:
    found = snapshot("web")
    conditions = set_condition(
        (),
        ConditionType.PROGRESSING,
        ConditionStatus.TRUE,
        reason=reason,
        message="",
        now=found.rollout.created,
        observed_generation=1,
    )
    status = found.rollout.status.model_copy(update={"replicas": 4, "conditions": conditions})
    return Plan((), status, record_first=False, next_due=None, **more)


def series(metrics: Metrics) -> list[str]:
    return [line for line in metrics.text().decode().splitlines() if not line.startswith("#")]


def test_an_object_is_shown_with_its_replicas_and_conditions() -> None:
    metrics = Metrics()
    metrics.decided(snapshot("web"), plan(), 0.01)
    shown = series(metrics)
    assert (
        'accelerator_rollout_info{kind="Deployment",name="web",namespace="team",workload="web"} 1.0' in shown
    )
    assert 'accelerator_rollout_replicas{name="web",namespace="team",state="desired"} 4.0' in shown
    assert (
        'accelerator_rollout_condition{name="web",namespace="team",reason="Rolling",type="Progressing"} 1.0'
        in shown
    )


def test_a_reason_that_is_over_is_not_shown_any_more() -> None:
    metrics = Metrics()
    metrics.decided(snapshot("web"), plan("Rolling"), 0.01)
    metrics.decided(snapshot("web"), plan("Complete"), 0.01)
    assert [line for line in series(metrics) if 'reason="Rolling"' in line] == []


def test_a_hundred_objects_leave_nothing_behind() -> None:
    metrics = Metrics()
    metrics.decided(snapshot("first"), plan(), 0.01)
    metrics.gone(Key("team", "first"))
    before = len(series(metrics))
    for number in range(100):
        metrics.decided(snapshot(f"web-{number}"), plan(), 0.01)
    assert len(series(metrics)) > before
    for number in range(100):
        metrics.gone(Key("team", f"web-{number}"))
    assert len(series(metrics)) == before


def test_times_and_results_are_counted_without_a_pod_or_a_device() -> None:
    metrics = Metrics()
    metrics.decided(
        snapshot("web"),
        plan(
            stage_times=(StageTime("Releasing", 3.0),),
            release_times=(ReleaseTime("lpu.example.com", 4.0, "Kubelet"),),
        ),
        0.01,
    )
    metrics.acted(EvictPod("pod-of-web", "uid-of-pod"), "refused")
    shown = "\n".join(series(metrics))
    assert 'accelerator_rollout_stage_duration_seconds_sum{stage="Releasing"} 3.0' in shown
    assert (
        'accelerator_rollout_device_release_seconds_sum{driver="lpu.example.com",proof="Kubelet"} 4.0'
        in shown
    )
    assert 'accelerator_rollout_evictions_total{result="refused"} 1.0' in shown
    assert "pod-of-web" not in shown
    assert "uid-of-pod" not in shown


def test_what_somebody_else_counts_is_a_counter() -> None:
    metrics = Metrics()
    metrics.counter("found_out", "Found out.", lambda: 5.0)
    text = metrics.text().decode()
    assert "# TYPE accelerator_rollout_found_out_total counter" in text
    assert "accelerator_rollout_found_out_total 5.0" in text


def test_releases_that_nothing_proves_are_counted_while_they_last() -> None:
    metrics = Metrics()
    gone = project.rollout(
        o.rollout("web", status={"replacements": [o.replacement("a", claim_name="c", device="d")]})
    )
    assert isinstance(gone, RolloutObject)
    unproven = gone.status.replacements[0].model_copy(update={"reason": "ReleaseUnproven"})
    decided = plan()
    told = decided.status.model_copy(update={"replacements": (unproven,)})
    metrics.decided(snapshot("web"), replace(decided, status=told), 0.01)
    assert 'accelerator_rollout_unproven_releases{name="web",namespace="team"} 1.0' in series(metrics)
    metrics.decided(snapshot("web"), decided, 0.01)
    assert 'accelerator_rollout_unproven_releases{name="web",namespace="team"} 0.0' in series(metrics)
