"""The real API server stores, bounds, defaults, refuses and shows our kind as the models say."""

import asyncio
import json
import re
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from accelerator_rollout import names
from accelerator_rollout.api import crd, rules
from accelerator_rollout.api.base import MAX_MESSAGE
from accelerator_rollout.api.models import (
    MAX_HISTORY,
    MAX_HISTORY_REPLACEMENTS,
    MAX_REPLACEMENTS,
    MAX_STAGE_TIMES,
    Cause,
    Outcome,
    Proof,
    RolloutObject,
    RolloutSpec,
    RolloutStatus,
    Stage,
)
from accelerator_rollout.api.parse import parse
from accelerator_rollout.decide.reasons import Halted, NotFree, Overdue, Refusal, Trouble, Waiting
from lab.client import Api, ApiError, Object
from lab.controlplane import ControlPlane
from lab.kubeconfig import Connection
from lab.namespaces import make_namespace, remove_namespace
from lab.resources import ACCELERATOR_ROLLOUTS, CUSTOM_RESOURCE_DEFINITIONS
from lab.toolchain import find_kubectl
from unit.api.samples import BOUNDS, RULES, SPEC, Case, full, smallest

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def shared_namespace(cluster: Connection) -> Iterator[str]:
    """One namespace for all tests here: to remove one takes seconds, and no pod will be in it."""
    name = f"test-crd-{secrets.token_hex(4)}"

    async def begin() -> None:
        async with Api(cluster) as api:
            await api.apply_manifest(crd.COMMITTED)
            await make_namespace(api, name)

    async def end() -> None:
        async with Api(cluster) as api:
            await remove_namespace(api, name)

    asyncio.run(begin())
    yield name
    asyncio.run(end())


@pytest.fixture
async def namespace(admin: Api, shared_namespace: str) -> AsyncIterator[str]:
    """A namespace without any object of our kind."""
    yield shared_namespace
    await admin.request("DELETE", ACCELERATOR_ROLLOUTS.path(namespace=shared_namespace))
    assert (await admin.list(ACCELERATOR_ROLLOUTS, shared_namespace)).items == []


async def create(admin: Api, namespace: str, spec: Mapping[str, Any] = SPEC, name: str = "llm") -> Object:
    """Create and return the object, and refuse to lose a field on the way, as `kubectl apply` does."""
    return await admin.request(
        "POST",
        ACCELERATOR_ROLLOUTS.path(namespace=namespace),
        params={"fieldValidation": "Strict"},
        body=smallest(name, namespace) | {"spec": spec},
    )


async def refusal(admin: Api, namespace: str, spec: Mapping[str, Any], name: str = "llm") -> dict[str, str]:
    """What the API server says against the object: field to message."""
    with pytest.raises(ApiError) as refused:
        await create(admin, namespace, spec, name)
    return causes(refused.value)


def causes(error: ApiError) -> dict[str, str]:
    """Field to message; the server's own introduction of it, which versions word differently, is left out."""
    assert error.status == 422, error
    found = error.body["details"]["causes"]
    return {cause["field"]: re.sub('^Invalid value: ("[^"]*": )?', "", cause["message"]) for cause in found}


async def write_status(admin: Api, stored: Object, status: RolloutStatus) -> Object:
    """Write the status and read it back."""
    body = stored | {"status": status.to_raw()}
    await admin.replace(ACCELERATOR_ROLLOUTS, body, subresource="status")
    return await admin.get(ACCELERATOR_ROLLOUTS, stored["metadata"]["name"], stored["metadata"]["namespace"])


@pytest.mark.usefixtures("namespace")
async def test_the_definition_is_established_without_a_complaint(admin: Api) -> None:
    served = await admin.get(CUSTOM_RESOURCE_DEFINITIONS, names.CRD_NAME)
    conditions = {c["type"]: c["status"] for c in served["status"]["conditions"]}
    assert conditions["Established"] == "True"
    assert conditions["NamesAccepted"] == "True"
    assert conditions.get("NonStructuralSchema", "False") == "False"


@pytest.mark.usefixtures("namespace")
async def test_the_api_server_stores_the_very_schema_that_was_sent(admin: Api) -> None:
    served = await admin.get(CUSTOM_RESOURCE_DEFINITIONS, names.CRD_NAME)
    ours = crd.custom_resource_definition()["spec"]["versions"]
    assert served["spec"]["versions"] == ours


@pytest.mark.parametrize("longest", [False, True], ids=["plain", "as long as allowed"])
async def test_every_status_field_survives(admin: Api, namespace: str, longest: bool) -> None:
    status = full(RolloutStatus, longest=longest)
    kept = await write_status(admin, await create(admin, namespace), status)
    assert kept["status"] == status.to_raw()
    read = parse(kept)
    assert isinstance(read, RolloutObject), read
    assert read.status == status


async def test_a_status_field_missing_from_the_schema_would_have_been_noticed(
    admin: Api, namespace: str
) -> None:
    stored = await create(admin, namespace)
    body = stored | {"status": full(RolloutStatus).to_raw() | {"forgotten": "field"}}
    body["status"]["replacements"][0]["claims"][0]["devices"][0]["forgotten"] = "deep down"
    await admin.replace(ACCELERATOR_ROLLOUTS, body, subresource="status")
    kept = await admin.get(ACCELERATOR_ROLLOUTS, "llm", namespace)
    assert kept["status"] != body["status"]


def every_member(status: Object) -> Iterator[Object]:
    """The status once for each member of each enumeration."""
    for field, members in (("stage", Stage), ("cause", Cause), ("proof", Proof)):
        for member in members:
            changed = deepcopy(status)
            changed["replacements"][0][field] = member.value
            yield changed
    for outcome in Outcome:
        changed = deepcopy(status)
        changed["history"][0]["outcome"] = outcome.value
        yield changed


async def test_every_member_of_every_enumeration_survives(admin: Api, namespace: str) -> None:
    await create(admin, namespace)
    for status in every_member(full(RolloutStatus).to_raw()):
        kept = await admin.patch(
            ACCELERATOR_ROLLOUTS, "llm", {"status": status}, namespace, subresource="status"
        )
        assert kept["status"] == status


def fullest() -> RolloutStatus:
    """Every list full, eight devices a pod, long messages, names of ordinary length."""
    status = full(RolloutStatus)
    entry, past = status.replacements[0], status.history[0].replacements[0]
    claim = entry.claims[0].model_copy(update={"devices": entry.claims[0].devices * 4})
    entry = entry.model_copy(
        update={
            "claims": (claim,),
            "stage_times": entry.stage_times * (MAX_STAGE_TIMES // 2),
            "message": "x" * MAX_MESSAGE,
        }
    )
    past = past.model_copy(update={"stages": past.stages * (MAX_STAGE_TIMES // 2)})
    rollout = status.history[0].model_copy(update={"replacements": (past,) * MAX_HISTORY_REPLACEMENTS})
    entries = tuple(entry.model_copy(update={"id": f"{n}"}) for n in range(MAX_REPLACEMENTS))
    return status.model_copy(update={"replacements": entries, "history": (rollout,) * MAX_HISTORY})


async def test_the_fullest_status_can_be_stored(admin: Api, namespace: str) -> None:
    kept = await write_status(admin, await create(admin, namespace), fullest())
    assert kept["status"] == fullest().to_raw()


async def test_a_merge_patch_of_an_empty_status_empties_the_lists(admin: Api, namespace: str) -> None:
    await write_status(admin, await create(admin, namespace), full(RolloutStatus))
    kept = await admin.patch(
        ACCELERATOR_ROLLOUTS, "llm", {"status": RolloutStatus().to_raw()}, namespace, subresource="status"
    )
    assert (kept["status"]["replacements"], kept["status"]["history"], kept["status"]["conditions"]) == (
        [],
        [],
        [],
    )
    assert kept["status"]["replicas"] == 0


async def test_defaults_there_are_the_defaults_here(admin: Api, namespace: str) -> None:
    stored = await create(admin, namespace)
    assert stored["spec"] == RolloutSpec.from_raw(SPEC).to_raw()


@pytest.mark.parametrize(
    "partly",
    [{"release": {}}, {"release": {"unproven": {}}}, {"release": {"timeoutSeconds": 5}}, {"release": None}],
    ids=json.dumps,
)
async def test_defaults_fill_what_is_left_out_of_a_part(
    admin: Api, namespace: str, partly: dict[str, Any]
) -> None:
    stored = await create(admin, namespace, SPEC | partly)
    assert stored["spec"] == RolloutSpec.from_raw(SPEC | partly).to_raw()


@pytest.mark.parametrize("case", RULES.values(), ids=RULES)
async def test_a_rule_accepts_and_refuses_in_the_words_of_the_models(
    admin: Api, namespace: str, case: Case
) -> None:
    await create(admin, namespace, case.accepted)
    assert await refusal(admin, namespace, case.refused, name="other") == {case.field: case.message}


@pytest.mark.parametrize("case", BOUNDS.values(), ids=BOUNDS)
async def test_a_bound_accepts_and_refuses(admin: Api, namespace: str, case: Case) -> None:
    await create(admin, namespace, case.accepted)
    assert case.message in (await refusal(admin, namespace, case.refused, name="other"))[case.field]


async def test_the_workload_cannot_be_changed_but_the_rest_can(admin: Api, namespace: str) -> None:
    await create(admin, namespace)
    changed = await admin.patch(ACCELERATOR_ROLLOUTS, "llm", {"spec": {"paused": True}}, namespace)
    assert changed["spec"]["paused"] is True
    words = (
        "workloadRef cannot be changed: this object answers for the pods of Deployment llm. "
        "For another workload create another AcceleratorRollout"
    )
    for change in ({"kind": "StatefulSet"}, {"name": "other"}, {"apiVersion": "batch/v1"}):
        with pytest.raises(ApiError) as refused:
            await admin.patch(ACCELERATOR_ROLLOUTS, "llm", {"spec": {"workloadRef": change}}, namespace)
        assert causes(refused.value)["spec.workloadRef"] == words


async def test_a_name_leaves_room_for_the_names_of_events(admin: Api, namespace: str) -> None:
    await create(admin, namespace, name="n" * rules.MAX_OBJECT_NAME)
    said = await refusal(admin, namespace, SPEC, name="n" * (rules.MAX_OBJECT_NAME + 1))
    (words,) = said.values()
    assert words == (
        "metadata.name may have at most 236 characters: "
        "Events about the object are named after it, with a suffix"
    )


@pytest.mark.parametrize("field", ["template", "maxUnavailable"])
async def test_a_field_that_would_do_nothing_is_not_accepted(admin: Api, namespace: str, field: str) -> None:
    with pytest.raises(ApiError, match=f'unknown field "spec.{field}"'):
        await create(admin, namespace, SPEC | {field: {}})


async def test_what_is_asked_for_once_is_stored_and_has_an_id(admin: Api, namespace: str) -> None:
    asked = {"action": {"type": "Undo", "id": "1"}, "restartedAt": "2026-01-31T12:00:00Z"}
    stored = await create(admin, namespace, SPEC | asked)
    assert stored["spec"].items() >= asked.items()
    said = await refusal(admin, namespace, SPEC | {"action": {"type": "Undo", "id": ""}}, name="other")
    assert "spec.action.id" in said
    said = await refusal(admin, namespace, SPEC | {"action": {"type": "Explode", "id": "1"}}, name="other")
    assert "spec.action.type" in said


async def test_a_spec_without_workload_names_what_is_missing(admin: Api, namespace: str) -> None:
    assert (await refusal(admin, namespace, {}))["spec.workloadRef"] == "Required value"


async def test_status_and_spec_are_written_apart(admin: Api, namespace: str) -> None:
    await create(admin, namespace)
    both = {"spec": {"paused": True}, "status": {"replicas": 3}}
    by_status = await admin.patch(ACCELERATOR_ROLLOUTS, "llm", both, namespace, subresource="status")
    assert (by_status["spec"]["paused"], by_status["status"], by_status["metadata"]["generation"]) == (
        False,
        {"observedGeneration": 0, "replicas": 3},
        1,
    )
    by_spec = await admin.patch(ACCELERATOR_ROLLOUTS, "llm", both | {"status": {"replicas": 4}}, namespace)
    assert (by_spec["spec"]["paused"], by_spec["status"], by_spec["metadata"]["generation"]) == (
        True,
        {"observedGeneration": 0, "replicas": 3},
        2,
    )


async def test_objects_are_selected_by_their_workload(admin: Api, namespace: str) -> None:
    await create(admin, namespace, name="deployment")
    await create(
        admin,
        namespace,
        {"workloadRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "llm-7b"}},
        name="stateful-set",
    )

    async def selected(selector: str) -> list[str]:
        page = await admin.list(ACCELERATOR_ROLLOUTS, namespace, field_selector=selector)
        return [item["metadata"]["name"] for item in page.items]

    assert await selected("spec.workloadRef.name=llm") == ["deployment"]
    assert await selected("spec.workloadRef.kind=StatefulSet") == ["stateful-set"]
    assert await selected("spec.workloadRef.kind=StatefulSet,spec.workloadRef.name=llm") == []


async def kubectl(kubeconfig: Path, *arguments: str) -> list[str]:
    """The lines that kubectl prints."""
    process = await asyncio.create_subprocess_exec(
        find_kubectl(),
        f"--kubeconfig={kubeconfig}",
        f"--cache-dir={kubeconfig.parent}/kubectl-cache",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), timeout=60)
    assert process.returncode == 0, err.decode()
    return [line.rstrip() for line in out.decode().splitlines()]


def columns(lines: list[str]) -> dict[str, str]:
    """One row by column, cut where the heads begin: a message contains blanks."""
    head, row = lines
    starts = [i for i, c in enumerate(head) if c != " " and (i == 0 or head[i - 1] == " ")]
    ends = [*starts[1:], None]
    return {head[a:b].strip(): row[a:b].strip() for a, b in zip(starts, ends, strict=True)}


async def shown(admin: Api, namespace: str, name: str, status: RolloutStatus) -> None:
    await write_status(admin, await create(admin, namespace, name=name), status)


def told(stage: str, why: str = "") -> RolloutStatus:
    """A status that tells of this stage or reason, and why the replacement in flight waits, if there is one."""
    status = full(RolloutStatus).to_raw() | {"replicas": 4, "updatedReplicas": 2, "availableReplicas": 3}
    for entry, kind in zip(status["conditions"], ("Ready", "Progressing"), strict=True):
        entry |= {"type": kind, "status": "False", "reason": stage, "message": "pod llm-1 holds lpu-0"}
    status["replacements"] = [status["replacements"][0] | {"reason": why}] if why else []
    return RolloutStatus.from_raw(status)


async def test_kubectl_shows_where_a_rollout_stands(
    admin: Api, namespace: str, control_plane: ControlPlane
) -> None:
    await shown(admin, namespace, "llm", told("Releasing", "DeviceTaken"))
    get = ("get", "arol", "-n", namespace)
    seen = columns(await kubectl(control_plane.kubeconfig, *get))
    assert seen == {
        "NAME": "llm",
        "READY": "False",
        "UPDATED": "2",
        "PROGRESS": "Releasing",
        "WHY": "DeviceTaken",
    }
    wide = columns(await kubectl(control_plane.kubeconfig, *get, "-o", "wide"))
    assert wide.pop("AGE")
    assert wide == seen | {
        "WORKLOAD": "llm",
        "KIND": "Deployment",
        "DESIRED": "4",
        "AVAILABLE": "3",
        "STALLED": "",
        "MESSAGE": "pod llm-1 holds lpu-0",
    }


# With the longest words that each column can have: in flight a stage and its reason; at rest a reason alone.
LONGEST_STAGE = max(Stage, key=len)
LONGEST_WHY = max((reason for kind in (NotFree, Waiting, Trouble) for reason in kind), key=len)
LONGEST_PROGRESS = max((reason for kind in (Waiting, Refusal, Overdue, Halted) for reason in kind), key=len)


@pytest.mark.parametrize(
    ("progress", "why"), [(LONGEST_STAGE, LONGEST_WHY), (LONGEST_PROGRESS, "")], ids=["in flight", "at rest"]
)
async def test_what_kubectl_shows_fits_80_columns(
    admin: Api, namespace: str, control_plane: ControlPlane, progress: str, why: str
) -> None:
    name = "llm-inference-worker"
    await shown(admin, namespace, name, told(str(progress), str(why)))
    lines = await kubectl(control_plane.kubeconfig, "get", "arol", name, "-n", namespace)
    assert columns(lines) == {
        "NAME": name,
        "READY": "False",
        "UPDATED": "2",
        "PROGRESS": progress,
        "WHY": why,
    }
    assert max(map(len, lines)) <= 80


@pytest.mark.usefixtures("namespace")
async def test_kubectl_explains_a_field(control_plane: ControlPlane, admin: Api) -> None:
    async with asyncio.timeout(30):
        # What there is to explain is published some seconds after the kind is served, without any event.
        while "apis/accelerator-rollout.dev/v1alpha1" not in await admin.text("/openapi/v3"):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    lines = await kubectl(control_plane.kubeconfig, "explain", "arol.spec.release.timeoutSeconds")
    assert any("until its devices are proven free" in line for line in lines)
