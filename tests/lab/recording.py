"""Decisions of a real operator as JSON: what was decided on, when, and what came of it. For replays without a cluster.

As the program `python -m lab.recording run …` it is the operator itself, which appends each decision to the file that RECORD_TO
names, a line each. `compacted` keeps every fact once. tests/cluster/walks/test_recorded_run.py makes the recordings that
tests/model/test_recorded.py replays, and says how.
"""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from accelerator_rollout.decide.outcome import Plan
from accelerator_rollout.decide.snapshot import Snapshot
from accelerator_rollout.records import ClaimRecord, Device

RECORD_TO: Final = "RECORD_TO"
_REF: Final = "$"  # the only key of what stands for an earlier part
_SHORT: Final = 40  # characters that are written as often as they come
_SNAPSHOT: Final = TypeAdapter(Snapshot)
_HOLDERS: Final = TypeAdapter(tuple[tuple[Device, tuple[ClaimRecord, ...]], ...])  # no JSON key is a device


@dataclass(frozen=True)
class Decision:
    """One decision, and what was told of it."""

    now: datetime
    snapshot: Snapshot
    told: dict[str, Any]


def told(plan: Plan) -> dict[str, Any]:
    """Return what a plan asks for and where it says that things stand, without the words."""
    found = {
        "actions": [[type(a).__name__, asdict(a)] for a in plan.actions],
        "recordFirst": plan.record_first,
        "stages": [[e.pod_name, e.stage, e.proof, e.replacement_pod_name] for e in plan.status.replacements],
        "conditions": [[c.type, c.status, c.reason] for c in plan.status.conditions],
    }
    read_again: dict[str, Any] = json.loads(json.dumps(found))  # as a recording has it
    return read_again


def to_line(snapshot: Snapshot, plan: Plan, now: datetime) -> str:
    """Return the decision as one line of JSON."""
    bare = replace(snapshot, holders={})
    holders = _HOLDERS.dump_python(tuple(snapshot.holders.items()), mode="json")
    told_of = _SNAPSHOT.dump_python(bare, mode="json", by_alias=True) | {"holders": holders}
    return json.dumps({"now": now.isoformat(), "snapshot": told_of, "told": told(plan)})


def compacted(lines: Iterable[str]) -> str:
    """Return a recording in which each fact stands once, without the decisions that nothing new led to, nor came of."""
    parts: dict[str, int] = {}

    def once(value: Any) -> Any:
        if isinstance(value, dict):
            value = {name: once(inner) for name, inner in value.items()}
        elif isinstance(value, list):
            value = [once(inner) for inner in value]
        text = _dense(value)
        return value if len(text) <= _SHORT else {_REF: parts.setdefault(text, len(parts))}

    decisions: list[str] = []
    last = None
    for line in lines:
        raw = json.loads(line)
        if raw["snapshot"] == last and not raw["told"]["actions"]:
            continue
        last = raw["snapshot"]
        snapshot = {name: once(value) for name, value in raw["snapshot"].items()}
        decisions.append(_dense({"now": raw["now"], "snapshot": snapshot, "told": once(raw["told"])}))
    return '{"parts":[\n' + ",\n".join(parts) + '\n],"decisions":[\n' + ",\n".join(decisions) + "\n]}\n"


def read(text: str) -> Iterator[Decision]:
    """Yield the decisions of a compacted recording."""
    recording = json.loads(text)
    parts: list[Any] = []
    for part in recording["parts"]:  # each refers to earlier ones
        parts.append(_whole(part, parts))
    for raw in recording["decisions"]:
        snapshot = _whole(raw["snapshot"], parts)
        holders = _HOLDERS.validate_python(snapshot["holders"])
        made = _SNAPSHOT.validate_python(snapshot | {"holders": {}}, by_alias=True, by_name=True)
        now = datetime.fromisoformat(raw["now"])
        yield Decision(now, replace(made, holders=dict(holders)), _whole(raw["told"], parts))


def _dense(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _whole(value: Any, parts: list[Any]) -> Any:
    if isinstance(value, list):
        return [_whole(inner, parts) for inner in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {_REF}:
        return parts[value[_REF]]
    return {name: _whole(inner, parts) for name, inner in value.items()}


def main() -> int:
    """Be the operator, and record."""
    from accelerator_rollout import app  # whoever only reads needs no operator
    from accelerator_rollout.cli import main as command_line

    names, target = vars(app), Path(os.environ[RECORD_TO])
    decide = names["plan"]

    def recorded(snapshot: Snapshot, now: datetime) -> Plan:
        plan: Plan = decide(snapshot, now)
        with target.open("a") as file:
            file.write(to_line(snapshot, plan, now) + "\n")
        return plan

    names["plan"] = recorded
    return command_line.main()


if __name__ == "__main__":
    raise SystemExit(main())
