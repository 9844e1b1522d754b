"""The slices that a simulated driver publishes: coherent unless a fault says otherwise."""

import pytest

from lab.nodes.pool import SLICE_LIMIT, DeviceTaint, PoolFault, ResourcePool, TaintEffect


def pool(count: int = 4, *, slices: int = 1) -> ResourcePool:
    devices = tuple(f"lpu-{index}" for index in range(count))
    return ResourcePool(
        driver="lpu.example.dev", name="node-a", node="node-a", devices=devices, slices=slices
    )


def devices_of(manifest: dict[str, object]) -> list[str]:
    return [device["name"] for device in manifest["spec"]["devices"]]  # type: ignore[index]


@pytest.mark.parametrize("slices", [1, 2, 3])
def test_generation_and_count_agree_in_every_slice_and_every_device_is_listed_once(slices: int) -> None:
    one = pool(slices=slices)
    one.next_generation()
    manifests = one.next_generation()

    assert [manifest["spec"]["pool"] for manifest in manifests] == [
        {"name": "node-a", "generation": 2, "resourceSliceCount": slices}
    ] * slices
    assert [name for manifest in manifests for name in devices_of(manifest)] == list(one.devices)
    assert len({manifest["metadata"]["name"] for manifest in manifests}) == slices


def test_a_slice_never_lists_more_devices_than_the_api_allows() -> None:
    manifests = pool(SLICE_LIMIT + 1).next_generation()

    assert [len(devices_of(manifest)) for manifest in manifests] == [33, 32]


def test_an_incomplete_pool_shows_fewer_slices_than_it_counts() -> None:
    one = pool()
    one.fault = PoolFault.INCOMPLETE
    (manifest,) = one.next_generation()

    assert manifest["spec"]["pool"]["resourceSliceCount"] == 2
    assert devices_of(manifest) == ["lpu-0", "lpu-1"]


def test_disagreeing_slices_of_one_generation_name_different_counts() -> None:
    one = pool()
    one.fault = PoolFault.DISAGREEING
    pools = [manifest["spec"]["pool"] for manifest in one.next_generation()]

    assert [entry["resourceSliceCount"] for entry in pools] == [2, 3]
    assert {entry["generation"] for entry in pools} == {1}


def test_a_duplicate_device_stands_in_two_slices() -> None:
    one = pool()
    one.fault = PoolFault.DUPLICATE

    assert [devices_of(manifest) for manifest in one.next_generation()] == [
        ["lpu-0", "lpu-1"],
        ["lpu-2", "lpu-3", "lpu-0"],
    ]


def test_a_missing_pool_has_no_slice_but_remembers_its_generation() -> None:
    one = pool()
    one.next_generation()
    one.fault = PoolFault.MISSING

    assert one.next_generation() == []
    assert one.generation == 2


def test_a_withdrawn_device_is_not_listed_and_keeps_its_index_when_it_comes_back() -> None:
    one = pool()
    one.withdrawn.add("lpu-1")
    (manifest,) = one.next_generation()
    assert devices_of(manifest) == ["lpu-0", "lpu-2", "lpu-3"]

    one.withdrawn.clear()
    (manifest,) = one.next_generation()
    assert [device["attributes"]["index"] for device in manifest["spec"]["devices"]] == [
        {"int": index} for index in range(4)
    ]


def test_a_tainted_device_says_so() -> None:
    one = pool(2)
    one.taints["lpu-1"] = [DeviceTaint(key="example.dev/bad", effect=TaintEffect.NO_EXECUTE)]
    (manifest,) = one.next_generation()

    assert [device.get("taints") for device in manifest["spec"]["devices"]] == [
        None,
        [{"key": "example.dev/bad", "effect": "NoExecute"}],
    ]


def test_a_device_that_the_pool_does_not_have_is_refused_by_name() -> None:
    with pytest.raises(KeyError, match="pool node-a has no device 'lpu-9'; it has lpu-0, lpu-1"):
        pool(2).require("lpu-9")
