"""Whether there is an election, and where its Lease is."""

from pathlib import Path

import pytest

from accelerator_rollout.config import Settings
from accelerator_rollout.election import place_of
from accelerator_rollout.errors import StartError
from unit.app.test_config import told

NONE = Path("/nonexistent/namespace")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A pod's own namespace, as the kubelet mounts it."""
    path = tmp_path / "namespace"
    path.write_text("of-the-pod\n")
    return path


def test_in_a_pod_there_is_one_in_its_own_namespace(own: Path) -> None:
    place = place_of(Settings(), {}, own)
    assert place is not None
    assert (place.namespace, place.name) == ("of-the-pod", "accelerator-rollout")


def test_outside_there_is_none() -> None:
    assert place_of(Settings(), {}, NONE) is None


def test_where_a_namespace_is_named_there_is_one(own: Path) -> None:
    named = Settings(lease_namespace="there", lease_name="x")
    for path in (own, NONE):
        place = place_of(named, {"POD_NAMESPACE": "of-the-variable"}, path)
        assert place is not None
        assert (place.namespace, place.name) == ("there", "x")


def test_a_variable_names_the_pods_namespace_where_no_token_is_mounted(own: Path) -> None:
    place = place_of(Settings(), {"POD_NAMESPACE": "of-the-variable"}, own)
    assert place is not None
    assert place.namespace == "of-the-variable"


def test_off_is_off(own: Path) -> None:
    assert place_of(Settings(leader_election="off", lease_namespace="there"), {}, own) is None


def test_on_without_a_namespace_is_no_silent_off() -> None:
    with pytest.raises(StartError, match="--lease-namespace"):
        place_of(Settings(leader_election="on"), {}, NONE)


@pytest.mark.parametrize(
    ("retry", "deadline", "duration", "fits"),
    [("2", "10", "15", True), ("2", "15", "15", False), ("5", "10", "15", False), ("2", "20", "15", False)],
)
def test_a_holder_stops_before_another_begins_and_has_a_second_try(
    retry: str, deadline: str, duration: str, fits: bool
) -> None:
    given = [f"--lease-retry-seconds={retry}", f"--lease-renew-deadline-seconds={deadline}"]
    given.append(f"--lease-duration-seconds={duration}")
    if fits:
        assert told(*given).lease_renew_deadline_seconds == float(deadline)
        return
    with pytest.raises(StartError, match="do not fit"):
        told(*given)
