"""What keeps a successor's containers from running is named early, and told apart."""

from typing import Any

import pytest

from accelerator_rollout.decide.reasons import Trouble
from accelerator_rollout.decide.trouble import trouble
from builders import NEW, pod


def told(**facts: Any) -> tuple[Trouble, str] | None:
    return trouble(pod("worker-2", NEW, **({"ready": False} | facts)))


@pytest.mark.parametrize(
    ("facts", "reason", "words"),
    [
        ({"waiting_reason": "ErrImagePull", "waiting_message": "no such tag"}, Trouble.IMAGE_ERROR, "no such tag"),
        ({"waiting_reason": "InvalidImageName"}, Trouble.IMAGE_ERROR, "InvalidImageName"),
        ({"waiting_reason": "CreateContainerError", "waiting_message": "no /dev/lpu0"}, Trouble.CREATE_CONTAINER_ERROR, "/dev/lpu0"),
        ({"waiting_reason": "RunContainerError"}, Trouble.CREATE_CONTAINER_ERROR, "RunContainerError"),
        ({"exit_code": 128, "exit_reason": "StartError"}, Trouble.CREATE_CONTAINER_ERROR, "StartError"),
        ({"waiting_reason": "CrashLoopBackOff", "exit_code": 3, "exit_reason": "Error"}, Trouble.CRASH_LOOP, "exit code 3"),
        ({"waiting_reason": "CrashLoopBackOff", "exit_code": 0}, Trouble.CRASH_LOOP, "exit code 0"),
        ({"exit_code": 1, "exit_message": "first\nlast words\n"}, Trouble.CRASH_LOOP, ": last words, "),
        ({"exit_code": 137, "exit_reason": "OOMKilled"}, Trouble.OUT_OF_MEMORY_KILLED, "resources.limits.memory"),
        ({"exit_code": 1, "exit_message": "torch.OutOfMemoryError: CUDA out of memory. Tried to"}, Trouble.DEVICE_MEMORY_ERROR, "settleSeconds"),
        ({"waiting_reason": "RunContainerError", "waiting_message": "CUDA_ERROR_OUT_OF_MEMORY"}, Trouble.DEVICE_MEMORY_ERROR, "OUT_OF_MEMORY"),
    ],
)  # fmt: skip
def test_each_cause_has_its_reason_and_keeps_what_was_said(
    facts: dict[str, Any], reason: Trouble, words: str
) -> None:
    found = told(**facts)
    assert found is not None
    assert found[0] is reason
    assert words in found[1]


@pytest.mark.parametrize(
    "said",
    [
        "RuntimeError: CUDA error: out of memory",
        "HIP out of memory. Tried to allocate 2.00 GiB",
        "XPU out of memory",
        "hipErrorOutOfMemory",
        "UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY",
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1 bytes",
        "ValueError: Free memory on device (1.2/80.0 GiB) on startup is less than desired GPU memory utilization",
        "a traceback\nRuntimeError: out of device memory\nand its end",
    ],
)
def test_programs_say_in_many_ways_that_their_device_is_full(said: str) -> None:
    found = told(exit_code=1, exit_message=said)
    assert found is not None
    assert found[0] is Trouble.DEVICE_MEMORY_ERROR


@pytest.mark.parametrize("said", ["std::bad_alloc", "Cannot allocate memory", "RESOURCE_EXHAUSTED: quota"])
def test_other_shortages_are_not_the_devices(said: str) -> None:
    found = told(exit_code=1, exit_message=said)
    assert found is not None
    assert found[0] is Trouble.CRASH_LOOP


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"waiting_reason": "ContainerCreating"},
        {"exit_code": 255, "exit_reason": "Unknown", "restarts": 1},  # its node was rebooted
        {"exit_code": 1, "ready": True},
    ],
)
def test_what_is_no_trouble(facts: dict[str, Any]) -> None:
    assert told(**facts) is None


def test_after_a_reboot_what_it_waits_for_counts_and_not_how_it_ended() -> None:
    found = told(waiting_reason="CreateContainerError", exit_code=1, exit_message="CUDA out of memory")
    assert found is not None
    assert found[0] is Trouble.CREATE_CONTAINER_ERROR


def test_the_words_stand_still_while_a_pull_or_a_crash_is_tried_again() -> None:
    why = 'failed to resolve "x": not found'
    assert told(waiting_reason="ErrImagePull", waiting_message=why) == told(
        waiting_reason="ImagePullBackOff", waiting_message=f'Back-off pulling image "x": ErrImagePull: {why}'
    )
    crashed = {"exit_code": 1, "exit_reason": "Error"}
    assert told(**crashed) == told(
        waiting_reason="CrashLoopBackOff", waiting_message="back-off 20s restarting", **crashed
    )
