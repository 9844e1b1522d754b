"""Series tell of objects and never of pods, and go away with their object."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from accelerator_rollout.api.conditions import ConditionStatus, ConditionType, set_condition
from accelerator_rollout.api.models import Outcome, PastRollout, RolloutObject
from accelerator_rollout.decide.actions import EvictPod
from accelerator_rollout.decide.outcome import Plan, ReleaseTime, StageTime
from accelerator_rollout.decide.snapshot import Freshness, Snapshot
from accelerator_rollout.metrics import Metrics
from accelerator_rollout.names import GATE
from accelerator_rollout.observe import project
from accelerator_rollout.observe.interests import Key
from accelerator_rollout.tracing.identity import current_trace
from builders import pod
from unit.observe import objects as o

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


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
    metrics.decided(snapshot("web"), plan())
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
    metrics.decided(snapshot("web"), plan("Rolling"))
    metrics.decided(snapshot("web"), plan("Complete"))
    assert [line for line in series(metrics) if 'reason="Rolling"' in line] == []


def test_a_hundred_objects_leave_nothing_behind() -> None:
    metrics = Metrics()
    metrics.decided(snapshot("first"), plan())
    metrics.gone(Key("team", "first"))
    before = len(series(metrics))
    for number in range(100):
        metrics.decided(snapshot(f"web-{number}"), plan())
    assert len(series(metrics)) > before
    for number in range(100):
        metrics.gone(Key("team", f"web-{number}"))
    assert len(series(metrics)) == before


def test_a_process_that_stands_down_shows_no_object_any_more() -> None:
    metrics = Metrics()
    before = len(series(metrics))
    metrics.decided(snapshot("web"), plan())
    metrics.stood_down()
    assert [line for line in series(metrics) if 'name="web"' in line] == []
    assert len(series(metrics)) >= before


def test_times_and_results_are_counted_without_a_pod_or_a_device() -> None:
    metrics = Metrics()
    metrics.decided(
        snapshot("web"),
        plan(
            stage_times=(StageTime("Releasing", 3.0),),
            release_times=(ReleaseTime("lpu.example.com", 4.0, "Kubelet"),),
        ),
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
    metrics.decided(snapshot("web"), replace(decided, status=told))
    assert 'accelerator_rollout_unproven_releases{name="web",namespace="team"} 1.0' in series(metrics)
    metrics.decided(snapshot("web"), decided)
    assert 'accelerator_rollout_unproven_releases{name="web",namespace="team"} 0.0' in series(metrics)


def rollouts(*outcomes: Outcome) -> Plan:
    """A plan whose history has these, newest first."""
    history = tuple(
        PastRollout(revision=f"r{number}", outcome=outcome, started_at=NOW - timedelta(hours=number))
        for number, outcome in enumerate(outcomes)
    )
    decided = plan()
    return replace(decided, status=decided.status.model_copy(update={"history": history}))


def with_status_of(plan: Plan) -> Snapshot:
    found = snapshot("web")
    return replace(found, rollout=replace(found.rollout, status=plan.status))


def test_a_rollout_that_ends_is_counted_once() -> None:
    metrics = Metrics()
    metrics.decided(snapshot("web"), rollouts(Outcome.IN_PROGRESS))
    assert [line for line in series(metrics) if "outcomes_total" in line] == []
    for _ in range(2):
        metrics.decided(snapshot("web"), rollouts(Outcome.COMPLETED))
    wanted = 'accelerator_rollout_outcomes_total{name="web",namespace="team",outcome="Completed"} 1.0'
    assert wanted in series(metrics)


def test_what_ended_before_a_restart_is_shown_and_not_counted_again() -> None:
    metrics = Metrics()
    ended = rollouts(Outcome.ABORTED, Outcome.COMPLETED)
    metrics.decided(with_status_of(ended), ended)
    assert [line for line in series(metrics) if "outcomes_total" in line] == []
    latest = 'accelerator_rollout_latest_outcome{name="web",namespace="team",outcome="Aborted"} 1.0'
    assert latest in series(metrics)


def test_an_object_of_the_same_name_begins_anew() -> None:
    metrics = Metrics()
    metrics.decided(snapshot("web"), rollouts(Outcome.IN_PROGRESS))
    metrics.decided(snapshot("web"), rollouts(Outcome.COMPLETED))
    other = snapshot("web")
    other = replace(other, rollout=replace(other.rollout, uid="another"))
    metrics.decided(other, plan())
    assert [line for line in series(metrics) if "outcome" in line] == []


def test_the_oldest_gate_ages_though_nothing_is_decided() -> None:
    now = NOW
    metrics = Metrics(lambda: now)
    young = pod("web-1", gates=(GATE,), created=NOW)
    old = pod("web-0", gates=(GATE,), created=NOW - timedelta(seconds=30))
    metrics.decided(replace(snapshot("web"), pods=(young, old)), plan())
    now = NOW + timedelta(seconds=10)
    assert 'accelerator_rollout_oldest_gate_age_seconds{name="web",namespace="team"} 40.0' in series(metrics)
    metrics.decided(snapshot("web"), plan())
    assert 'accelerator_rollout_oldest_gate_age_seconds{name="web",namespace="team"} 0.0' in series(metrics)


def test_teardown_is_told_by_workload() -> None:
    metrics = Metrics()
    for seconds in (3.0, 5.0):
        metrics.decided(snapshot("web"), plan(stage_times=(StageTime("Terminating", seconds),)))
    where = '{kind="Deployment",name="web",namespace="team",workload="web"}'
    assert f"accelerator_rollout_teardown_seconds_sum{where} 8.0" in series(metrics)
    assert f"accelerator_rollout_teardown_seconds_count{where} 2.0" in series(metrics)


def test_exemplars_carry_the_trace_where_the_scraper_takes_them() -> None:
    metrics = Metrics()
    decided = rollouts(Outcome.IN_PROGRESS)
    metrics.decided(snapshot("web"), replace(decided, stage_times=(StageTime("Gated", 1.0),)))
    trace = current_trace(snapshot("web").rollout.uid, decided.status)
    body, content_type = metrics.exposition("application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    assert content_type.startswith("application/openmetrics-text")
    assert f'# {{trace_id="{trace}"}} 1.0' in body.decode()
    assert body.endswith(b"# EOF\n")
    body, content_type = metrics.exposition("text/plain;version=0.0.4")
    assert content_type.startswith("text/plain")
    assert trace not in body.decode()


def test_the_same_rollout_is_the_same_trace_in_every_process() -> None:
    decided = rollouts(Outcome.IN_PROGRESS)
    first = decided.status.history[0]
    told = first.model_copy(update={"started_at": first.started_at.replace(microsecond=999_000)})
    before = decided.status.model_copy(update={"history": (told,)})
    assert current_trace("uid", decided.status) == current_trace("uid", before)
    assert len(current_trace("uid", decided.status)) == 32
    assert current_trace("other", decided.status) != current_trace("uid", decided.status)


def test_comparisons_with_the_cluster_are_counted_by_how_they_ended() -> None:
    metrics = Metrics()
    metrics.compared("agreed", 0.2)
    metrics.compared("failed", 15.0)
    assert 'accelerator_rollout_resyncs_total{result="failed"} 1.0' in series(metrics)
    assert "accelerator_rollout_resync_duration_seconds_count 1.0" in series(metrics)


def test_a_thousand_objects_stay_within_what_was_promised() -> None:
    """See docs/monitoring.md: at most 30 series an object."""
    metrics = Metrics()
    alone = len(series(metrics))
    for number in range(1000):
        metrics.decided(snapshot(f"web-{number}"), rollouts(Outcome.COMPLETED))
    assert (len(series(metrics)) - alone) / 1000 <= 30
