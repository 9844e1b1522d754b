"""What annotations and image tags make a simulated pod do, and how its containers end."""

import math
from typing import Any

import pytest

from lab.nodes.faults import (
    PREFIX,
    Behaviour,
    FaultError,
    StartFailure,
    Value,
    annotations_of,
    behaviour_of,
    ending_of,
    prestop_seconds,
)


def pod(
    *,
    image: str = "example.com/llm:v1",
    annotations: dict[str, str] | None = None,
    pre_stop: dict[str, Any] | None = None,
) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "vllm", "image": image}
    if pre_stop is not None:
        container["lifecycle"] = {"preStop": pre_stop}
    return {
        "metadata": {"name": "llm-0", "annotations": annotations or {}},
        "spec": {"containers": [container]},
    }


def test_a_pod_without_any_annotation_behaves_well() -> None:
    assert behaviour_of(pod()) == Behaviour()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("teardown_seconds", 2.5),
        ("prepare_seconds", 3.0),
        ("unprepare_seconds", 20.0),
        ("unprepare_failures", 3),
        ("prepare_failures", math.inf),
        ("never_ready", True),
        ("never_dies", True),
        ("crash_after_seconds", 0.5),
        ("crash_message", "out of device memory"),
        ("complete_after_seconds", 1.0),
        ("start_failure", StartFailure.CREATE),
        ("start_failures", 2),
    ],
)
def test_every_fault_reads_back_from_the_annotation_that_sets_it(name: str, value: Value) -> None:
    behaviour = behaviour_of(pod(annotations=annotations_of(**{name: value})))

    assert getattr(behaviour, name) == value


def test_the_pod_overrides_its_image_which_overrides_the_node() -> None:
    node = annotations_of(never_ready=True, unprepare_seconds=20)

    assert behaviour_of(pod(), node).unprepare_seconds == 20
    assert behaviour_of(pod(annotations=annotations_of(unprepare_seconds=1)), node).unprepare_seconds == 1
    assert behaviour_of(pod(annotations=annotations_of(never_ready=False)), node).never_ready is False


@pytest.mark.parametrize(
    ("image", "field", "value"),
    [
        ("example.com/llm:broken", "start_failure", StartFailure.IMAGE_PULL),
        ("example.com/llm:broken@sha256:00", "start_failure", StartFailure.IMAGE_PULL),
        ("example.com:5000/llm:unready", "never_ready", True),
        ("example.com/llm:crashing", "crash_after_seconds", 0.1),
    ],
)
def test_an_image_tag_says_what_is_wrong_with_the_image(image: str, field: str, value: Value) -> None:
    assert getattr(behaviour_of(pod(image=image)), field) == value


def test_a_registry_host_called_broken_is_no_broken_image() -> None:
    assert behaviour_of(pod(image="broken/llm:v1")) == Behaviour()


def test_a_number_of_crashes_alone_makes_the_pod_crash_that_often() -> None:
    behaviour = behaviour_of(pod(annotations=annotations_of(crash_times=2)))

    assert (behaviour.crash_times, behaviour.crash_after_seconds) == (2, 0.1)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("unprepare-second", "20", "is not a fault; known are .*unprepare-seconds"),
        ("unprepare-seconds", "soon", "'soon' is no value for it; use seconds, 0 or more"),
        ("unprepare-seconds", "-1", "use seconds"),
        ("unprepare-seconds", "inf", "use seconds"),
        ("prepare-failures", "1.5", "use a whole number or forever"),
        ("never-ready", "yes", "use true or false"),
        ("start-failure", "Tired", "use one of ImagePullBackOff, "),
    ],
)
def test_a_fault_that_means_nothing_is_refused_by_name(key: str, value: str, message: str) -> None:
    with pytest.raises(FaultError, match=message):
        behaviour_of(pod(annotations={PREFIX + key: value}))


def test_annotations_of_others_are_not_looked_at() -> None:
    assert behaviour_of(pod(annotations={"example.com/never-ready": "yes"})) == Behaviour()


@pytest.mark.parametrize(
    ("behaviour", "grace", "seconds", "exit_code"),
    [
        pytest.param(Behaviour(teardown_seconds=2), 30, 2, 0, id="in time"),
        pytest.param(Behaviour(teardown_seconds=30), 30, 30, 0, id="at the last instant"),
        pytest.param(Behaviour(teardown_seconds=120), 30, 30, 137, id="cut by SIGKILL"),
        pytest.param(Behaviour(teardown_seconds=120), 0, 1, 137, id="a kubelet gives one second at least"),
        pytest.param(Behaviour(never_dies=True), 30, None, 137, id="not even then"),
    ],
)
def test_containers_never_outlive_the_grace_period(
    behaviour: Behaviour, grace: float, seconds: float | None, exit_code: int
) -> None:
    ending = ending_of(behaviour, pod(), grace)

    assert (ending.seconds, ending.exit_code) == (seconds, exit_code)


def test_a_pre_stop_hook_longer_than_the_grace_is_killed_within_it() -> None:
    ending = ending_of(Behaviour(), pod(pre_stop={"sleep": {"seconds": 60}}), 30)

    assert (ending.seconds, ending.exit_code, ending.killed) == (30, 137, True)


def test_the_spec_s_periods_shrink_together() -> None:
    slow = pod(pre_stop={"sleep": {"seconds": 60}})

    assert ending_of(Behaviour(), slow, 120, grace_scale=0.01).seconds == pytest.approx(0.65)
    assert ending_of(Behaviour(), slow, 30, grace_scale=0.01).killed


@pytest.mark.parametrize(
    ("hook", "seconds"),
    [
        ({"sleep": {"seconds": 7}}, 7),
        ({"exec": {"command": ["/bin/sh", "-c", "drain && flush --all && sleep 5"]}}, 5),
        ({"exec": {"command": ["sleep", "2.5"]}}, 2.5),
        ({"exec": {"command": ["drain"]}}, 0),
    ],
)
def test_a_pre_stop_hook_takes_as_long_as_it_says(hook: dict[str, Any], seconds: float) -> None:
    assert prestop_seconds(pod(pre_stop=hook)["spec"]["containers"]) == seconds
