"""The driver of the real node, as far as it needs neither a kubelet nor an API server: orders, memory, CDI."""

import json
from pathlib import Path
from typing import Any

import pytest

from lab.realnode.driver import cdi
from lab.realnode.driver.allocation import allocated
from lab.realnode.driver.checkpoint import Checkpoint, CheckpointError
from lab.realnode.driver.faults import Crash, FaultError, Faults
from lab.realnode.driver.kubelet_api import ClaimRef, PreparedDevice

DRIVER = "lpu.example.dev"


# Faults


def test_without_a_file_nothing_is_wrong(tmp_path: Path) -> None:
    assert Faults.read(tmp_path / "none.json") == Faults(order="")


def test_an_order_is_read_as_it_was_given(tmp_path: Path) -> None:
    order = Faults(prepare_seconds=1.5, fail_unprepares=3, crash=Crash.WHILE_PREPARING, registered=False)
    order.write(tmp_path / "faults.json")

    assert Faults.read(tmp_path / "faults.json") == order


def test_no_two_orders_have_the_same_name() -> None:
    assert Faults().order != Faults().order


@pytest.mark.parametrize(
    "told",
    [
        [],
        {"unprepare_second": 1},
        {"unprepare_seconds": -1},
        {"unprepare_seconds": True},
        {"fail_prepares": 1.5},
        {"fail_prepares": -1},
        {"crash": "now"},
        {"registered": 1},
        {"order": 7},
    ],
)
def test_what_means_nothing_is_refused(told: object) -> None:
    with pytest.raises(FaultError):
        Faults.parse(told)


def test_a_file_that_is_no_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "faults.json"
    path.write_text("{")
    with pytest.raises(FaultError, match="is no JSON"):
        Faults.read(path)


# What it remembers

CLAIM = ClaimRef("models", "llm-0-lpu", "uid-1")
DEVICE = PreparedDevice(
    requests=("lpu",), pool="node-a", device="lpu-0", cdi=(f"{DRIVER}/claim=uid-1-lpu-0",)
)


def test_what_was_saved_is_loaded_by_the_next_life(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.json"
    saved = Checkpoint.load(path)
    saved.claims[CLAIM.uid] = (CLAIM, (DEVICE,))
    saved.save()

    assert Checkpoint.load(path).claims == {CLAIM.uid: (CLAIM, (DEVICE,))}


def test_a_fault_strikes_as_often_as_ordered_however_often_the_driver_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.json"

    struck = [Checkpoint.load(path).strikes("first", "fail_prepares", 2) for _ in range(4)]

    assert struck == [True, True, False, False]


def test_faults_are_counted_each_for_itself_and_anew_for_each_order(tmp_path: Path) -> None:
    checkpoint = Checkpoint.load(tmp_path / "checkpoint.json")
    assert checkpoint.strikes("first", "fail_prepares", 1)
    assert checkpoint.strikes("first", "fail_unprepares", 1)
    assert not checkpoint.strikes("first", "fail_prepares", 1)
    assert checkpoint.strikes("second", "fail_prepares", 1)


@pytest.mark.parametrize("saved", ["{", "{}", "[]", '{"claims": {"uid": {}}, "order": "", "spent": {}}'])
def test_a_memory_that_cannot_be_read_is_no_empty_one(tmp_path: Path, saved: str) -> None:
    path = tmp_path / "checkpoint.json"
    path.write_text(saved)
    with pytest.raises(CheckpointError, match="is no checkpoint"):
        Checkpoint.load(path)


# What a container gets


def test_the_cdi_file_has_one_device_for_each_of_the_claim_under_the_name_that_the_kubelet_is_told(
    tmp_path: Path,
) -> None:
    cdi.write(tmp_path, DRIVER, "uid-1", {"lpu-0": Path("/host/lpu-0"), "lpu-1": Path("/host/lpu-1")})

    (file,) = tmp_path.iterdir()
    assert file.suffix == ".json", "a container runtime reads no other"
    spec = json.loads(file.read_text())
    names = [f"{spec['kind']}={device['name']}" for device in spec["devices"]]
    assert names == [cdi.device_id(DRIVER, "uid-1", device) for device in ("lpu-0", "lpu-1")]
    edits = spec["devices"][1]["containerEdits"]
    assert edits["env"] == ["ACCELERATOR_LPU_1=/accelerators/lpu.example.dev/lpu-1"]
    assert edits["mounts"][0]["hostPath"] == "/host/lpu-1"


def test_removing_a_claim_leaves_the_files_of_others(tmp_path: Path) -> None:
    for uid in ("uid-1", "uid-2"):
        cdi.write(tmp_path, DRIVER, uid, {"lpu-0": Path("/host/lpu-0")})

    cdi.remove(tmp_path, DRIVER, "uid-1")
    cdi.remove(tmp_path, DRIVER, "uid-1")

    assert list(tmp_path.iterdir()) == [cdi.spec_path(tmp_path, DRIVER, "uid-2")]


# What a claim has


def claim(*results: dict[str, Any], reserved: tuple[dict[str, str], ...] = ()) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "models", "name": "llm-0-lpu", "uid": "uid-1"},
        "status": {"allocation": {"devices": {"results": list(results)}}, "reservedFor": list(reserved)},
    }


def result(device: str, **more: Any) -> dict[str, Any]:
    return {"request": "lpu", "driver": DRIVER, "pool": "node-a", "device": device, **more}


def test_of_a_claim_only_the_drivers_own_devices_count() -> None:
    body = claim(result("lpu-0"), result("nic-0", driver="nic.example.dev"))

    found = allocated(body, DRIVER)

    assert found is not None
    assert [one.device.name for one in found] == ["lpu-0"]


def test_a_claim_that_has_nothing_of_this_driver_is_not_the_same_as_one_that_has_nothing_yet() -> None:
    assert allocated(claim(result("nic-0", driver="nic.example.dev")), DRIVER) == ()
    assert allocated({"metadata": {}, "status": {}}, DRIVER) is None


def test_a_hold_in_reserved_for_is_no_pod() -> None:
    hold = {
        "apiGroup": "accelerator-rollout.dev",
        "resource": "acceleratorrollouts",
        "name": "llm",
        "uid": "h",
    }
    pod = {"resource": "pods", "name": "llm-0", "uid": "p"}

    (with_pod,) = allocated(claim(result("lpu-0"), reserved=(hold, pod)), DRIVER) or ()
    (without,) = allocated(claim(result("lpu-0"), reserved=(hold,)), DRIVER) or ()

    assert (with_pod.holder.pod_name, with_pod.holder.pod_uid) == ("llm-0", "p")
    assert without.holder.pod_name == ""


def test_shared_and_admin_devices_are_told_as_such_and_a_subrequest_by_its_request() -> None:
    (one, other) = (
        allocated(
            claim(
                result("lpu-0", shareID="share-1", request="lpu/small"),
                result("lpu-1", adminAccess=True),
            ),
            DRIVER,
        )
        or ()
    )

    assert (one.request, one.holder.share, one.holder.admin) == ("lpu", "share-1", False)
    assert (other.holder.share, other.holder.admin) == ("", True)
