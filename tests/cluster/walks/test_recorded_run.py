"""Given a rollout on a real control plane, when its decisions are replayed without one, then each comes out again.

To renew the recordings that tests/model/test_recorded.py replays, which a change of the decision on purpose asks for:
`RECORDINGS=tests/model/recorded .venv/bin/python -m pytest tests/cluster/walks/test_recorded_run.py`.
"""

import asyncio
import os
from pathlib import Path

import pytest

from accelerator_rollout.decide.invariants import violations
from accelerator_rollout.decide.plan import plan
from lab.client import Api
from lab.install import Account
from lab.operator_process import OperatorProcess
from lab.recording import RECORD_TO, compacted, read, told
from lab.world import GOOD, NEWER, MakeWorld, Shape


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
async def test_a_recorded_run_replays(
    kind: str, make_world: MakeWorld, admin: Api, account: Account, namespace: str, tmp_path: Path
) -> None:
    faults = {"teardown_seconds": 0.3, "unprepare_seconds": 0.3}
    world = await make_world(Shape(kind, replicas=2, grace=2, faults=faults, hold="Always"), devices=(1, 1))
    lines = tmp_path / "decisions"
    operator = await OperatorProcess.under(
        account,
        admin,
        tmp_path,
        arguments=(f"--namespaces={namespace}", "--log-format=text"),
        environment={RECORD_TO: str(lines)},
        module="lab.recording",
    )
    async with operator:
        await world.settle_in(spec={"release": {"unproven": {"extraSeconds": 3}}})
        for image in (NEWER, GOOD):
            await world.set_image(image)
            await world.until_ready(image=image)
    world.assert_promises()
    recording = compacted((await asyncio.to_thread(lines.read_text)).splitlines())
    decisions = list(read(recording))
    assert decisions
    for decision in decisions:
        again = plan(decision.snapshot, decision.now)
        assert told(again) == decision.told
        assert violations(decision.snapshot, again, decision.now) == ()
    kept = os.environ.get("RECORDINGS")
    if kept:
        target = Path(kept) / f"{kind.lower()}.json"
        await asyncio.to_thread(target.write_text, recording)
