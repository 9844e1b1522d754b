"""What a decision asks of a workload kind. One module per kind answers; `driver_for` chooses."""

from dataclasses import dataclass
from typing import Protocol

from accelerator_rollout.decide.actions import Action
from accelerator_rollout.decide.reasons import Refusal, Waiting
from accelerator_rollout.records import PodRecord


@dataclass(frozen=True, slots=True)
class NotNow:
    """Why a step cannot be taken, or a gate not be opened, just now."""

    reason: Waiting
    message: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Why the workload cannot be driven as it is, and what its owner must change."""

    reason: Refusal
    message: str


class Driver(Protocol):
    """A workload with its pods, seen at one moment. All methods are pure."""

    def refusal(self) -> Refused | None:
        """Return what about the workload's own strategy keeps us from driving it."""
        ...

    def revision(self) -> str:
        """Return the name of the target revision; stable while the pod template stands."""
        ...

    def behind(self) -> NotNow | None:
        """Return why the workload's status does not speak of its newest spec yet."""
        ...

    def updated(self, pod: PodRecord) -> bool:
        """Whether the pod is of the target revision."""
        ...

    def complete(self) -> bool:
        """Whether its controller has nothing left to replace."""
        ...

    def stepping(self) -> bool:
        """Whether its controller is free to replace a pod by itself right now."""
        ...

    def held_back(self) -> NotNow | None:
        """Return whose pause, if not ours, keeps the workload where it is."""
        ...

    def open_blocked(self, pod: PodRecord) -> NotNow | None:
        """Return why opening this pod's gate now could set its controller off."""
        ...

    def choose(self, candidates: tuple[PodRecord, ...]) -> PodRecord:
        """Return which of the equally eligible pods to replace first. `candidates` is not empty."""
        ...

    def holds_up(self, pod: PodRecord, departed_name: str) -> bool:
        """Whether its controller makes the successor of `departed_name` only once `pod` is healthy."""
        ...

    def prepare(self, candidates: tuple[PodRecord, ...]) -> tuple[Action, ...]:
        """Return what can be done for the next replacement while another is in flight, without touching a pod's life."""
        ...

    def steps_alone(self) -> bool:
        """Whether its controller deletes pods by itself once it is free to, so that a step is all or nothing."""
        ...

    def step_size(self) -> int:
        """Return how many pods one step replaces; 0 where its controller has nothing that it may replace."""
        ...

    def replace(self, victims: tuple[PodRecord, ...]) -> tuple[Action, ...] | NotNow:
        """Return the actions that replace these pods and no other, or why that cannot be done now. There is at least one."""
        ...

    def upkeep(self, *, may_move: bool) -> tuple[Action, ...]:
        """Return what keeps the workload under control between steps; `may_move`: a step is allowed to go on."""
        ...

    def let_go(self) -> tuple[Action, ...]:
        """Return what takes everything of ours off the workload."""
        ...

    def ungated_revisions(self) -> tuple[str, ...]:
        """Return the names of revisions that can still make pods without our gate."""
        ...
