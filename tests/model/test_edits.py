"""In the walks people change every field of spec that the model can express, and healing takes back what would stop them."""

from accelerator_rollout.api.models import RolloutSpec
from model.edits import EDITS, HEALED, INEXPRESSIBLE, fields, values
from model.walk import TITLES, Walk

TRIES = 40  # of each step: some choose among values


def _inexpressible(path: str) -> bool:
    return any(path.startswith(beginning) for beginning in INEXPRESSIBLE)


def _spec(walk: Walk) -> RolloutSpec | None:
    return walk.cluster.rollout.spec if walk.cluster.rollout is not None else None


def test_every_field_of_spec_is_changed_by_some_step_or_excused() -> None:
    changed: set[str] = set()
    for title in TITLES:
        walk = Walk.start("Deployment")
        for _ in range(TRIES):
            before = _spec(walk)
            walk.take(title)
            after = _spec(walk)
            if before is not None and after is not None:
                changed |= {path for path, _ in values(before) ^ values(after)}
    asked = {path for path in fields() if not _inexpressible(path)}
    assert asked - changed == set(), "nobody changes these: see model.edits"


def test_excuses_are_of_fields_that_exist_and_that_nobody_changes() -> None:
    excused = {path for path in fields() if _inexpressible(path)}
    for beginning in INEXPRESSIBLE:
        assert any(path.startswith(beginning) for path in excused), beginning
    for title, patches in EDITS.items():
        for patch in patches:
            walk = Walk.start("Deployment")
            before = _spec(walk)
            assert before is not None
            walk.cluster.edit(patch(walk.cluster.now) if callable(patch) else patch)
            after = _spec(walk)
            assert after is not None
            assert {path for path, _ in values(before) ^ values(after)} & excused == set(), title


def test_what_the_api_server_would_refuse_changes_nothing() -> None:
    walk = Walk.start("Deployment")
    walk.take("spec: steps")
    before = _spec(walk)
    walk.take("spec: partition beside steps")
    assert _spec(walk) == before


def test_healing_ends_every_stop() -> None:
    walk = Walk.start("Deployment")
    walk.cluster.edit(
        {"paused": True, "strategy": {"partition": 2}, "release": {"unproven": {"policy": "Pause"}}}
    )
    walk.take("spec: deny now")
    walk.cluster.edit(HEALED)
    spec = _spec(walk)
    assert spec is not None
    assert not spec.paused
    assert spec.windows == ()
    assert spec.strategy.partition == 0
    assert spec.release.unproven.policy == "Wait"
