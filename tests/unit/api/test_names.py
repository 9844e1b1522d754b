"""Names stand in stored objects and running pods, so these are pinned: to change one takes a migration."""

from accelerator_rollout import names


def test_the_names_that_a_cluster_knows_us_by_do_not_change() -> None:
    assert {
        "api version": names.API_VERSION,
        "kind": names.KIND,
        "crd": names.CRD_NAME,
        "gate": names.GATE,
        "gate label": f"{names.GATE_LABEL}={names.GATE_LABEL_VALUE}",
        "managed label": f"{names.MANAGED_LABEL}={names.MANAGED_LABEL_VALUE}",
        "parked annotation": names.PARKED_ANNOTATION,
        "finalizer": names.FINALIZER,
        "guard finalizer": names.GUARD_FINALIZER,
        "taint": names.RESERVED_TAINT,
    } == {
        "api version": "accelerator-rollout.dev/v1alpha1",
        "kind": "AcceleratorRollout",
        "crd": "acceleratorrollouts.accelerator-rollout.dev",
        "gate": "accelerator-rollout.dev/device-release",
        "gate label": "accelerator-rollout.dev/gate=true",
        "managed label": "accelerator-rollout.dev/managed=true",
        "parked annotation": "accelerator-rollout.dev/parked",
        "finalizer": "accelerator-rollout.dev/release",
        "guard finalizer": "accelerator-rollout.dev/guard",
        "taint": "accelerator-rollout.dev/reserved",
    }
