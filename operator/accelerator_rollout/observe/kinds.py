"""The kinds we watch, and in which version: the one place to touch when another version is to be served.

Versions stand in order of preference; discovery says which of them the cluster has.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from accelerator_rollout.api.models import WorkloadKind
from accelerator_rollout.names import GROUP, PLURAL, VERSION


class Kind(StrEnum):
    """What we watch, by the plural name that the API uses."""

    PODS = "pods"
    CLAIMS = "resourceclaims"
    SLICES = "resourceslices"
    TAINT_RULES = "devicetaintrules"
    NODES = "nodes"
    BUDGETS = "poddisruptionbudgets"
    DEPLOYMENTS = "deployments"
    REPLICA_SETS = "replicasets"
    STATEFUL_SETS = "statefulsets"
    DAEMON_SETS = "daemonsets"
    REVISIONS = "controllerrevisions"
    ROLLOUTS = PLURAL


@dataclass(frozen=True, slots=True)
class Source:
    """Where a kind is found. An `optional` one may be missing from a cluster without any harm."""

    kind: Kind
    title: str  # the singular name, for messages
    group: str
    versions: tuple[str, ...]
    namespaced: bool = True
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Served:
    """A kind in the version that this cluster serves."""

    source: Source
    version: str

    @property
    def kind(self) -> Kind:
        """The kind."""
        return self.source.kind

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """The URL path of the collection, in one namespace or all, or of one object in it."""
        group, version = self.source.group, self.version
        parts = ["/apis", group, version] if group else ["/api", version]
        if namespace and self.source.namespaced:
            parts += ["namespaces", namespace]
        return "/".join([*parts, self.kind, *([name] if name else [])])


_DEVICES: Final = ("v1", "v1beta2", "v1beta1")  # from 1.34, 1.33 and 1.32 on

SOURCES: Final[Mapping[Kind, Source]] = {
    source.kind: source
    for source in (
        Source(Kind.ROLLOUTS, "AcceleratorRollout", GROUP, (VERSION,)),
        Source(Kind.DEPLOYMENTS, "Deployment", "apps", ("v1",)),
        Source(Kind.STATEFUL_SETS, "StatefulSet", "apps", ("v1",)),
        Source(Kind.DAEMON_SETS, "DaemonSet", "apps", ("v1",)),
        Source(Kind.REVISIONS, "ControllerRevision", "apps", ("v1",)),
        Source(Kind.REPLICA_SETS, "ReplicaSet", "apps", ("v1",)),
        Source(Kind.PODS, "Pod", "", ("v1",)),
        Source(Kind.CLAIMS, "ResourceClaim", "resource.k8s.io", _DEVICES),
        Source(Kind.SLICES, "ResourceSlice", "resource.k8s.io", _DEVICES, namespaced=False),
        # Only from 1.36 on (v1beta2, off by default), and v1 from 1.37: without it there are no rules to obey.
        Source(
            Kind.TAINT_RULES,
            "DeviceTaintRule",
            "resource.k8s.io",
            ("v1", "v1beta2"),
            namespaced=False,
            optional=True,
        ),
        Source(Kind.NODES, "Node", "", ("v1",), namespaced=False),
        Source(Kind.BUDGETS, "PodDisruptionBudget", "policy", ("v1",)),
    )
}

OF_WORKLOAD: Final[Mapping[WorkloadKind, Kind]] = {
    WorkloadKind.DEPLOYMENT: Kind.DEPLOYMENTS,
    WorkloadKind.STATEFUL_SET: Kind.STATEFUL_SETS,
    WorkloadKind.DAEMON_SET: Kind.DAEMON_SETS,
}
