"""The kinds of object that the test bed reads and writes, and where the API serves them."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind as the API serves it: its group ("" for the core), version, plural name and scope."""

    group: str
    version: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The `apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        """The URL path of its group and version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(
        self, name: str | None = None, namespace: str | None = None, subresource: str | None = None
    ) -> str:
        """The URL path of the collection, of one object, or of one object's subresource."""
        parts = [self.root]
        if namespace is not None:
            if not self.namespaced:
                msg = f"{self.plural} has no namespaces, yet namespace {namespace!r} was given"
                raise ValueError(msg)
            parts += ["namespaces", namespace]
        elif self.namespaced and name is not None:
            msg = f"{self.plural} {name!r} lives in a namespace, and none was given"
            raise ValueError(msg)
        parts.append(self.plural)
        if name is not None:
            parts.append(name)
        if subresource is not None:
            parts.append(subresource)
        return "/".join(parts)


NAMESPACES: Final = Resource("", "v1", "namespaces", namespaced=False)
NODES: Final = Resource("", "v1", "nodes", namespaced=False)
PODS: Final = Resource("", "v1", "pods")
EVENTS: Final = Resource("", "v1", "events")
SERVICES: Final = Resource("", "v1", "services")
SERVICE_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts")
CONFIG_MAPS: Final = Resource("", "v1", "configmaps")
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases")

DEPLOYMENTS: Final = Resource("apps", "v1", "deployments")
REPLICA_SETS: Final = Resource("apps", "v1", "replicasets")
STATEFUL_SETS: Final = Resource("apps", "v1", "statefulsets")
DAEMON_SETS: Final = Resource("apps", "v1", "daemonsets")
CONTROLLER_REVISIONS: Final = Resource("apps", "v1", "controllerrevisions")
JOBS: Final = Resource("batch", "v1", "jobs")
POD_DISRUPTION_BUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets")

RESOURCE_CLAIMS: Final = Resource("resource.k8s.io", "v1", "resourceclaims")
RESOURCE_CLAIM_TEMPLATES: Final = Resource("resource.k8s.io", "v1", "resourceclaimtemplates")
RESOURCE_SLICES: Final = Resource("resource.k8s.io", "v1", "resourceslices", namespaced=False)
DEVICE_CLASSES: Final = Resource("resource.k8s.io", "v1", "deviceclasses", namespaced=False)
DEVICE_TAINT_RULES: Final = Resource("resource.k8s.io", "v1", "devicetaintrules", namespaced=False)

ROLES: Final = Resource("rbac.authorization.k8s.io", "v1", "roles")
ROLE_BINDINGS: Final = Resource("rbac.authorization.k8s.io", "v1", "rolebindings")
CLUSTER_ROLES: Final = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", namespaced=False)
CLUSTER_ROLE_BINDINGS: Final = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", namespaced=False
)
CUSTOM_RESOURCE_DEFINITIONS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False
)
MUTATING_ADMISSION_POLICIES: Final = Resource(
    "admissionregistration.k8s.io", "v1", "mutatingadmissionpolicies", namespaced=False
)
MUTATING_ADMISSION_POLICY_BINDINGS: Final = Resource(
    "admissionregistration.k8s.io", "v1", "mutatingadmissionpolicybindings", namespaced=False
)
ACCELERATOR_ROLLOUTS: Final = Resource("accelerator-rollout.dev", "v1alpha1", "acceleratorrollouts")
