"""Whether we have the rights that the work needs: asked once at the start, so that a lack is told before anything moves."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Protocol

from accelerator_rollout.names import GROUP, PLURAL


@dataclass(frozen=True, slots=True)
class Right:
    """A verb on a resource."""

    verb: str
    group: str
    resource: str
    subresource: str = ""
    name: str = ""  # of the one object that it is about; "" for all

    def __str__(self) -> str:
        name = f"{self.resource}.{self.group}" if self.group else self.resource
        what = f"{self.verb} {name}" + (f"/{self.subresource}" if self.subresource else "")
        return f"{what} {self.name}" if self.name else what


# Reads show at the first list. Events are best effort.
NEEDED: Final = (
    Right("patch", GROUP, PLURAL),
    Right("patch", GROUP, PLURAL, "status"),
    Right("patch", "", "pods"),
    Right("create", "", "pods"),
    Right("create", "", "pods", "eviction"),
    Right("patch", "apps", "deployments"),
)


# The optional role: writes to reservedFor of a claim are checked twice from 1.36 on, for the whole cluster.
HOLDS: Final = (
    Right("patch", "resource.k8s.io", "resourceclaims", "status"),
    Right("patch", "resource.k8s.io", "resourceclaims", "binding"),
)


# The other optional role: taint rules are cluster-scoped.
RESERVATIONS: Final = (
    Right("create", "resource.k8s.io", "devicetaintrules"),
    Right("delete", "resource.k8s.io", "devicetaintrules"),
)


# And the third: what is written into a template runs. `templates` is no resource that is served: an admission policy asks for it.
TEMPLATES: Final = (
    Right("restore", GROUP, "templates"),
    Right("patch", "apps", "statefulsets"),
    Right("patch", "apps", "daemonsets"),
)


class Asking(Protocol):
    """Who asks the API server."""

    async def may(self, right: Right, namespace: str) -> bool:
        """Whether we have the right in the namespace ("" for all). Raises ActError."""
        ...


async def missing(client: Asking, namespaces: Collection[str] = ()) -> tuple[str, ...]:
    """Return what we may not do, in words: in these namespaces, or in all. Raises ActError."""
    return tuple([lack for space in namespaces or ("",) for lack in await refused(client, NEEDED, space)])


async def refused(client: Asking, rights: Collection[Right], namespace: str) -> tuple[str, ...]:
    """Return which of the rights we lack in the namespace ("" for all), in words. Raises ActError."""
    where = f"namespace {namespace}" if namespace else "all namespaces"
    return tuple([f"{right} in {where}" for right in rights if not await client.may(right, namespace)])
