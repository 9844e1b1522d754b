"""What keeps a pod's containers from running, told early and told apart: nothing fails for it before a deadline passes.

Kubernetes' own words stay in the message. Reasons are told from the last end of a container as well as from what it
waits for, so that they stand still while a crashing container is started again and again.
"""

import re
from typing import Final

from accelerator_rollout.decide.reasons import Trouble
from accelerator_rollout.records import PodRecord

# Waiting and termination reasons of the kubelet [pkg/kubelet/images/types.go, pkg/kubelet/container/sync_result.go].
_IMAGE: Final = frozenset(
    (
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    )
)
_CREATE: Final = frozenset(
    (
        "CreateContainerError",
        "CreateContainerConfigError",
        "RunContainerError",
        "PreCreateHookError",
        "PreStartHookError",
        "PostStartHookError",
    )
)
_NOT_STARTED: Final = frozenset(
    ("StartError", "ContainerCannotRun")
)  # of an end: the runtime could not start it
_BACK_OFF: Final = "CrashLoopBackOff"
_KILLED_FOR_MEMORY: Final = "OOMKilled"
_LOST: Final = frozenset(("Unknown", "ContainerStatusUnknown"))  # with its node's boot: no crash of its own
_MOST_TOLD: Final = 200  # characters of what a container or its runtime said

# How programs say that their device has too little memory left. Host memory alone ("Cannot allocate memory") is not here.
_DEVICE_MEMORY: Final = re.compile(
    "|".join(
        (
            r"\b(CUDA|HIP|ROCm|XPU|HPU|NPU|TPU|GPU|MPS|HBM)\b[^\n]{0,80}\bout of memory",  # PyTorch, and its plug-ins
            r"\bout of (device|gpu|hbm|accelerator) memory",
            r"\b(device|gpu|hbm|accelerator)\b[^\n]{0,40}\b(is )?out of memory",
            r"\b(CU(DA)?_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|hipErrorOutOfMemory)\b",
            r"\b[A-Z_]*OUT_OF_DEVICE_MEMORY\b",  # oneAPI (Level Zero, Unified Runtime), Vulkan
            r"\bCL_MEM_OBJECT_ALLOCATION_FAILURE\b",  # OpenCL
            r"\bRESOURCE_EXHAUSTED\b[^\n]{0,200}\b(out of memory|hbm|allocat)",  # XLA
            r"\bfree memory on device\b[^\n]{0,80}\bless than desired",  # vLLM
            r"\bno available memory for the cache blocks",  # vLLM
        )
    ),
    re.IGNORECASE,
)

# What the kubelet adds to the cause while it waits to pull again; without it both of its states read alike.
_PULL_BACK_OFF: Final = re.compile(r'^Back-off pulling image "[^"]*"(: )?')
_PULL_ERROR: Final = re.compile(r"^(ErrImagePull|ImagePullBackOff): ")


def trouble(pod: PodRecord) -> tuple[Trouble, str] | None:
    """Return what keeps the containers of a pod that is not ready from running, with the sentence on it."""
    if pod.ready:
        return None
    waits = pod.waiting_reason
    if waits in _IMAGE:
        said = _PULL_ERROR.sub("", _PULL_BACK_OFF.sub("", pod.waiting_message))
        return Trouble.IMAGE_ERROR, f"its image cannot be had: {_line(said) or waits}"
    # What it waits for now counts before how it ended last, perhaps before a reboot.
    uncreated = waits in _CREATE
    device_memory = _device_memory(pod.waiting_message if uncreated else pod.exit_message)
    if device_memory:
        text = (
            f"its device has too little memory left ({device_memory}). If a later start succeeds, memory of the pod "
            "before was still being freed: spec.release.settleSeconds, or a check of spec.release.checks, waits for that"
        )
        return Trouble.DEVICE_MEMORY_ERROR, text
    if uncreated or pod.exit_reason in _NOT_STARTED:
        what, said = (waits, pod.waiting_message) if uncreated else (pod.exit_reason, pod.exit_message)
        text = f"a container cannot be created: {what} ({_line(said) or 'no more is said'})"
        return Trouble.CREATE_CONTAINER_ERROR, text
    if pod.exit_reason == _KILLED_FOR_MEMORY:
        return (
            Trouble.OUT_OF_MEMORY_KILLED,
            "a container was killed for using more than its memory limit (OOMKilled): raise resources.limits.memory",
        )
    crashed = pod.exit_code is not None and pod.exit_code != 0 and pod.exit_reason not in _LOST
    if waits == _BACK_OFF or crashed:
        said = f": {line}" if (line := _line(pod.exit_message)) else ""
        code = "" if pod.exit_code is None else f" with exit code {pod.exit_code}"
        return (
            Trouble.CRASH_LOOP,
            f"a container ended{code}{said}, and is started again. See: kubectl logs {pod.name} --previous",
        )
    return None


def _device_memory(said: str) -> str:
    """Return the line in which a container, or its runtime, says that its device has too little memory left."""
    found = _DEVICE_MEMORY.search(said)
    if found is None:
        return ""
    begin = said.rfind("\n", 0, found.start()) + 1
    return _cut(said[max(begin, found.start() - _MOST_TOLD // 2) :].partition("\n")[0])


def _line(said: str) -> str:
    """Return the last line that says something: the end of a log is what went wrong."""
    return _cut(next((line for line in reversed(said.splitlines()) if line.strip()), ""))


def _cut(line: str) -> str:
    line = line.strip()
    return line if len(line) <= _MOST_TOLD else line[: _MOST_TOLD - 1] + "…"
