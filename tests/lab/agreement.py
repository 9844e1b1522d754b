"""Which answers of tools about one AcceleratorRollout agree. docs/gitops.md has the same table; a test holds the two together."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from accelerator_rollout.api.conditions import ConditionType, find_condition
from accelerator_rollout.api.models import RolloutObject
from accelerator_rollout.api.parse import parse
from accelerator_rollout.decide.explain import Verdict, judge
from accelerator_rollout.decide.reasons import Waiting
from lab.gitops import Argo, Flux
from lab.kstatus import computed

WANTED: Final = (
    Waiting.PAUSED,
    Waiting.STEP_PAUSE,
    Waiting.OUTSIDE_WINDOW,
    Waiting.PAUSED_BY_USER,
)  # somebody wanted it to stand still
AS_WANTED: Final = "Waiting as wanted"
UNREADABLE: Final = "Unreadable"  # by this version; what is written of it is that it is stalled


@dataclass(frozen=True, slots=True)
class Answers:
    """What each tool says of one state; `wait` is whether `kubectl wait --for=condition=Ready` would end."""

    kstatus: str
    argo: str
    flux: str
    wait: bool


# By our own verdict, that of `accelerator-rollout status`.
TABLE: Final[Mapping[str, Answers]] = {
    "Complete": Answers("Current", "Healthy", "Current", wait=True),
    "Progressing": Answers("InProgress", "Progressing", "InProgress", wait=False),
    "Waiting": Answers("InProgress", "Progressing", "InProgress", wait=False),
    AS_WANTED: Answers("InProgress", "Suspended", "InProgress", wait=False),
    "Stalled": Answers("Failed", "Degraded", "Failed", wait=False),
    UNREADABLE: Answers("Failed", "Degraded", "Failed", wait=False),
    "Unknown": Answers("InProgress", "Progressing", "InProgress", wait=False),
    "Deleting": Answers("Terminating", "Progressing", "InProgress", wait=False),
}


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A state of which a tool says something else than the table has."""

    ours: str
    said: Answers
    state: Mapping[str, Any]

    def __str__(self) -> str:
        meta, status = self.state["metadata"], self.state.get("status") or {}
        conditions = {c["type"]: f"{c['status']} {c['reason']}" for c in status.get("conditions", [])}
        seen = f"generation {meta['generation']}, observed {status.get('observedGeneration')}"
        return f"ours {self.ours}, others {self.said}: {seen}, {conditions}"


def ours(state: Mapping[str, Any]) -> str:
    """Return our own verdict, as the command line has it."""
    rollout = parse(state)
    if not isinstance(rollout, RolloutObject):
        if rollout.deletion is not None:
            return str(Verdict.DELETING)
        stalled = find_condition(rollout.conditions, ConditionType.STALLED)
        written = stalled is not None and stalled.observed_generation == rollout.generation
        return UNREADABLE if written else str(Verdict.UNKNOWN)  # for a moment, until it is written down
    verdict, told = judge(rollout, rollout.status)
    seen = rollout.status.observed_generation == rollout.generation
    if verdict is Verdict.WAITING and seen and told is not None and told.reason in list(WANTED):
        return AS_WANTED
    return str(verdict)


def waited(state: Mapping[str, Any]) -> bool:
    """Whether kubectl's wait for condition Ready ends: it is true, of the newest generation."""
    for one in (state.get("status") or {}).get("conditions", []):
        if one["type"] == "Ready":
            generation: int = state["metadata"]["generation"]
            observed: int = one.get("observedGeneration", generation)
            return bool(one["status"] == "True") and observed >= generation
    return False


def shape(state: Mapping[str, Any]) -> str:
    """Return all that any of the tools looks at, without names, times and words: states of one shape get one answer."""
    meta, status = state["metadata"], state.get("status") or {}
    conditions = sorted((c["type"], c["status"], c["reason"]) for c in status.get("conditions", []))
    behind = meta["generation"] - status.get("observedGeneration", 0)
    return f"{behind} {'deletionTimestamp' in meta} {bool(state['spec'].get('paused'))} {conditions}"


def compared(
    states: Sequence[Mapping[str, Any]], kstatus: Path, argo: Argo, flux: Flux
) -> tuple[Counter[str], list[Disagreement]]:
    """Return how many states there are of each of our verdicts, and of which tools disagree."""
    found: Counter[str] = Counter()
    wrong: list[Disagreement] = []
    for state, (status, _) in zip(states, computed(kstatus, states), strict=True):
        mine = ours(state)
        said = Answers(status, argo.health(state)[0], flux.status(state), waited(state))
        found[mine] += 1
        if said != TABLE[mine]:
            wrong.append(Disagreement(mine, said, state))
    return found, wrong


def figures(states: Iterable[Mapping[str, Any]], found: Mapping[str, int]) -> Iterator[str]:
    """Yield lines for people: how many states there were, and of what kinds."""
    shapes = Counter(map(shape, states))
    yield f"{sum(shapes.values())} distinct states, of {len(shapes)} shapes"
    yield ", ".join(f"{number} {verdict}" for verdict, number in sorted(found.items()))
