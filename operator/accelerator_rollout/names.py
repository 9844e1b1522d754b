"""Every name by which a cluster knows the operator: in one place, as a renamed gate strands running pods."""

from typing import Final

# The kind. Group and version stand in every stored object: changing them needs a conversion, not an edit.
GROUP: Final = "accelerator-rollout.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "AcceleratorRollout"
PLURAL: Final = "acceleratorrollouts"  # also the `resource` of our hold in a claim's reservedFor
SINGULAR: Final = "acceleratorrollout"
SHORT_NAME: Final = "arol"
CATEGORY: Final = "accelerators"  # `kubectl get accelerators` lists every kind that has to do with devices
CRD_NAME: Final = f"{PLURAL}.{GROUP}"

# The scheduling gate that keeps a replacement from the scheduler until its predecessor's devices are free.
GATE: Final = f"{GROUP}/device-release"

# Pod label by which our admission policy adds the gate to pods whose template has none.
GATE_LABEL: Final = f"{GROUP}/gate"
GATE_LABEL_VALUE: Final = "true"

# Deployment label (on the object, not its template) by which our admission policy parks it; set by us.
MANAGED_LABEL: Final = f"{GROUP}/managed"
MANAGED_LABEL_VALUE: Final = "true"

# Annotation of a Deployment whose pause is ours, with the reason. Without it, a person paused: left alone.
PARKED_ANNOTATION: Final = f"{GROUP}/parked"

# The admission policy (and its binding) that parks them.
PARKING_POLICY: Final = f"park.{GROUP}"

# Label of our own object: the group whose budget across AcceleratorRollouts it shares.
BUDGET_LABEL: Final = f"{GROUP}/budget"

# Finalizer on our own object: no gate, label or pause of ours may outlive the object that answers for it.
FINALIZER: Final = f"{GROUP}/release"

# Finalizer on pods that turns a forced deletion into an orderly one: the proof of release comes after all.
GUARD_FINALIZER: Final = f"{GROUP}/guard"

# Device taint that keeps other tenants off a freed device. NoSchedule only: NoExecute evicts running pods.
RESERVED_TAINT: Final = f"{GROUP}/reserved"

# Labels of our DeviceTaintRules: UID and namespace of the AcceleratorRollout that a device is reserved for.
RESERVED_BY_LABEL: Final = f"{GROUP}/reserved-by"
RESERVED_IN_LABEL: Final = f"{GROUP}/reserved-in"

# Field manager of all our writes: managedFields then show which fields are ours.
FIELD_MANAGER: Final = "accelerator-rollout"

# By which our manifests label the operator's Deployment and pods.
OPERATOR_SELECTOR: Final = "app.kubernetes.io/name=accelerator-rollout,app.kubernetes.io/component=operator"

# Kubernetes' own node label, by which a pod is pinned to a node.
HOSTNAME_LABEL: Final = "kubernetes.io/hostname"

# Kubernetes' own pod annotation (KEP-2255): of pods of equal rank a ReplicaSet removes the cheapest first.
DELETION_COST_ANNOTATION: Final = "controller.kubernetes.io/pod-deletion-cost"
