"""What tools make of our objects: they agree, and none takes what was said of an older spec for the newest.

The states of the first part are not a cluster's: one of each shape that cluster tests once recorded (states.jsonl beside this file, made by
`python -m lab.statuses`), and what walks of the model decide. tests/cluster/observe asks about thousands that a cluster has just seen.
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from accelerator_rollout.api.models import RolloutObject
from accelerator_rollout.names import API_VERSION, KIND
from lab.agreement import TABLE, compared, figures, shape
from lab.client import Object
from lab.gitops import HEALTH, Argo, Flux, kustomization
from lab.kstatus import ensure_kstatus
from lab.kubeconfig import Connection
from lab.operator_process import OperatorProcess
from lab.resources import STATEFUL_SETS
from lab.statuses import essence, stated
from lab.toolchain import find_kubectl
from lab.world import NEWER, MakeWorld, Shape, condition_of, image_of
from model.test_walks import WORLDS
from model.walk import STEPS, Walk

RECORDED = Path(__file__).parent / "states.jsonl"
WALKS, LENGTH = 1, 100  # of each world of the model
ROUNDS = 0.8  # so often nothing special happens: else the operator hardly ever sees all that it has to


@pytest.fixture(scope="session")
def kstatus() -> Path:
    return ensure_kstatus()


def agree(states: list[dict[str, Any]], kstatus: Path, lines: list[str], whose: str) -> set[str]:
    """Assert that all agree about the states; return of which verdicts there were any."""
    found, wrong = compared(states, kstatus, Argo.of(), Flux.of(kustomization(), states[0]))
    lines.extend(f"agreement about {whose}: {line}" for line in figures(states, found))
    assert wrong == [], "\n".join(map(str, wrong[:5]))
    return set(found)


def test_tools_agree_about_one_state_of_each_shape_that_was_recorded(
    kstatus: Path, figures: list[str]
) -> None:
    states = [json.loads(line) for line in RECORDED.read_text(encoding="utf-8").splitlines()]
    assert len({shape(state) for state in states}) == len(states)
    found = agree(states, kstatus, figures, "a recorded state of each shape")
    assert found >= set(TABLE) - {"Unreadable"}


def test_tools_agree_about_the_cases_beside_the_script(kstatus: Path, figures: list[str]) -> None:
    folder = HEALTH.parent / "testdata"
    states = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(folder.iterdir())]
    assert agree(states, kstatus, figures, "the cases for Argo CD") == set(TABLE)


def of_model(rollout: RolloutObject) -> dict[str, Any]:
    """The object as the API shows it."""
    metadata: dict[str, Any] = {
        "name": rollout.name,
        "namespace": rollout.namespace,
        "uid": rollout.uid,
        "generation": rollout.generation,
        "creationTimestamp": f"{rollout.created:%Y-%m-%dT%H:%M:%SZ}",
    }
    if rollout.deletion is not None:
        metadata["deletionTimestamp"] = f"{rollout.deletion:%Y-%m-%dT%H:%M:%SZ}"
    told = {"spec": rollout.spec.to_raw(), "status": rollout.status.to_raw()}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata} | told


def walked(world: str, seed: int) -> Iterator[dict[str, Any]]:
    walk = Walk.start(**WORLDS[world], seed=seed)  # type: ignore[arg-type]
    dice = Random(seed)
    for _ in range(LENGTH):
        if dice.random() < ROUNDS:
            walk.take("round")
        else:
            walk.step(dice.randrange(STEPS))
            walk.operator.stale = False
        if walk.cluster.rollout is not None:
            yield of_model(walk.cluster.rollout)


def test_tools_agree_about_what_walks_of_the_model_decide(kstatus: Path, figures: list[str]) -> None:
    seen = {}
    for seed in range(WALKS):
        for world in WORLDS:
            for state in walked(world, seed):
                seen[world, seed, essence(state)] = state
    found = agree(list(seen.values()), kstatus, figures, "states of the model")
    assert found >= {"Complete", "Progressing", "Waiting"}


class Person:
    """Somebody with the real kubectl."""

    def __init__(self, cluster: Connection, folder: Path, namespace: str) -> None:
        self._kubeconfig = folder / "person.kubeconfig"
        cluster.write_kubeconfig(self._kubeconfig, context="lab", user="person", namespace=namespace)

    async def wait(self, name: str, *, seconds: int) -> Object | None:
        """The object for which `kubectl wait --for=condition=Ready` ended, or None if it has timed out."""
        process = await asyncio.create_subprocess_exec(
            find_kubectl(),
            f"--kubeconfig={self._kubeconfig}",
            *("wait", "--for=condition=Ready", f"arol/{name}", f"--timeout={seconds}s", "-o", "json"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        told, error = await process.communicate()
        if process.returncode == 0:
            found: Object = json.loads(told)
            return found
        assert "timed out" in error.decode(), error.decode()
        return None


async def test_no_tool_takes_the_former_ready_for_that_of_a_new_spec(
    make_world: MakeWorld, operator: OperatorProcess, cluster: Connection, kstatus: Path, tmp_path: Path
) -> None:
    """The object is Ready as the partition keeps all pods; then the partition goes, and nobody has looked yet."""
    world = await make_world(Shape("StatefulSet", replicas=2), devices=(2,))
    await world.settle_in(spec={"strategy": {"partition": 2}})
    await world.set_image(NEWER)
    await world.until_reason("Ready", "PartitionReached")
    person = Person(cluster, tmp_path, world.namespace)
    assert await person.wait(world.name, seconds=5) is not None

    operator.pause()
    try:
        await world.change_rollout({"strategy": {"partition": 0}})
        assert await person.wait(world.name, seconds=2) is None
        state = stated(await world.rollout())
    finally:
        operator.resume()
    assert (condition_of(state, "Ready") or {})["status"] == "True", "or the test shows nothing"
    found, wrong = compared([state], kstatus, Argo.of(), Flux.of(kustomization(), state))
    assert (dict(found), wrong) == ({"Waiting": 1}, [])

    ended = await person.wait(world.name, seconds=60)
    assert ended is not None
    assert [image_of(pod) for pod in await world.pods()] == [NEWER, NEWER]


async def test_a_wait_that_begins_with_the_change_ends_with_what_came_of_it(
    make_world: MakeWorld, operator: OperatorProcess, cluster: Connection, tmp_path: Path
) -> None:
    world = await make_world(Shape("StatefulSet", replicas=1), devices=(1,))
    await world.settle_in()
    person = Person(cluster, tmp_path, world.namespace)
    for seconds in range(601, 606):
        await world.change_rollout({"progressDeadlineSeconds": seconds})
        ended = await person.wait(world.name, seconds=30)
        assert ended is not None
        assert ended["spec"]["progressDeadlineSeconds"] == seconds
        ready = condition_of(ended, "Ready")
        assert ready is not None
        assert ready["observedGeneration"] == ended["metadata"]["generation"]


async def test_after_a_change_of_the_template_the_workloads_generation_tells_what_ready_speaks_of(
    make_world: MakeWorld, operator: OperatorProcess
) -> None:
    world = await make_world(Shape("StatefulSet", replicas=1), devices=(1,))
    await world.settle_in()
    operator.pause()
    try:
        await world.set_image(NEWER)
        changed = await world.api.get(STATEFUL_SETS, world.name, world.namespace)
        before = await world.rollout()
    finally:
        operator.resume()
    generation = changed["metadata"]["generation"]
    ready = condition_of(before, "Ready")
    assert ready is not None
    assert ready["status"] == "True"  # our own object did not change, so nobody can tell by it alone
    assert before["status"]["observedWorkloadGeneration"] < generation

    def seen(rollout: Object) -> bool:
        found = condition_of(rollout, "Ready") or {}
        return bool(
            found.get("status") == "True" and rollout["status"]["observedWorkloadGeneration"] >= generation
        )

    await world.until(seen, "Ready of the newest template")
    assert [image_of(pod) for pod in await world.pods()] == [NEWER]
