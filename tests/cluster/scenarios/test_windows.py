"""Given windows, when the template changes outside of them, then nothing is replaced until one opens."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from lab.operator_process import OperatorProcess
from lab.world import NEWER, MakeWorld, Shape


@pytest.mark.parametrize("kind", ["StatefulSet", "Deployment"])
async def test_outside_the_window_nothing_is_replaced_until_an_edit_opens_it(
    kind: str, make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(Shape(kind, replicas=2), devices=(2,))
    far = datetime.now(UTC) + timedelta(days=40)  # so not while this runs
    shut = {"type": "Allow", "schedule": f"0 0 {min(far.day, 28)} {far.month} *", "durationSeconds": 60}
    await world.settle_in(spec={"windows": [shut]})

    await world.set_image(NEWER)
    found = await world.until_reason("Progressing", "OutsideWindow")
    assert f"{far.year}-{far.month:02}-" in str(found["status"]["conditions"]), "it says when it goes on"
    await asyncio.sleep(2)  # until the last news is told
    version = (await world.rollout())["metadata"]["resourceVersion"]
    await asyncio.sleep(3)  # nothing can be awaited here: nothing is to happen
    assert world.deletions() == []
    assert (await world.rollout())["metadata"]["resourceVersion"] == version, "nothing is written meanwhile"

    always = {"type": "Allow", "schedule": "* * * * *", "durationSeconds": 3600, "timeZone": "Europe/Berlin"}
    await world.change_rollout({"windows": [always]})
    await world.until_ready(image=NEWER)
    assert len(world.deletions()) == 2
    world.assert_promises()
