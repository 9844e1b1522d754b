"""What the tests of successors that are not well share."""

from typing import Any

import pytest

from lab.client import Object
from lab.world import MakeWorld, Shape, World, condition_of

EACH = pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])


async def make(make_world: MakeWorld, kind: str, replicas: int, **over: Any) -> World:
    """A world whose pods have a node each, if of a DaemonSet."""
    devices = (1,) * replicas if kind == "DaemonSet" else (replicas,)
    return await make_world(Shape(kind, replicas=replicas, **over), devices=devices)


async def until_told(world: World, reason: str, words: str = "") -> Object:
    """Await that a replacement in flight has this reason, with these words in its message."""

    def there(rollout: Object) -> bool:
        listed = (rollout.get("status") or {}).get("replacements") or []
        return any(r.get("reason") == reason and words in r.get("message", "") for r in listed)

    return await world.until(there, f"a replacement with reason {reason}", seconds=40)


async def until_stalled(world: World, *reasons: str) -> str:
    """Await that Stalled has one of these reasons; return its message."""

    def there(rollout: Object) -> bool:
        return (condition_of(rollout, "Stalled") or {}).get("reason") in reasons

    found = condition_of(await world.until(there, f"Stalled: {' or '.join(reasons)}", seconds=40), "Stalled")
    assert found is not None
    return str(found["message"])
