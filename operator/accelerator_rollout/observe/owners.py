"""Which tool owns a workload's template, and would put it back: told from the marks that the well-known ones leave."""

from typing import Final

import accelerator_rollout.observe.fields as read
from accelerator_rollout.observe.fields import Raw

# Helm last: Flux and Argo CD render charts with Helm's own labels, and are the ones who put things back.
_MARKS: Final = (
    (
        "Argo CD",
        ("argocd.argoproj.io/instance", "argocd.argoproj.io/tracking-id"),
        ("argocd-controller", "argocd-application-controller"),
    ),
    (
        "Flux",
        ("kustomize.toolkit.fluxcd.io/name", "helm.toolkit.fluxcd.io/name"),
        ("kustomize-controller", "helm-controller"),
    ),
    ("Helm", ("meta.helm.sh/release-name",), ("helm",)),
)
_MANAGED_BY: Final = "app.kubernetes.io/managed-by"


def owner_of_templates(meta: Raw) -> str:
    """Return the name of the tool; "" if none has left its mark."""
    labels, annotations = read.mapping(meta, "labels"), read.mapping(meta, "annotations")
    managers = {entry.get("manager") for entry in read.items(meta, "managedFields")}
    for name, keys, known in _MARKS:
        if any(key in labels or key in annotations for key in keys) or not managers.isdisjoint(known):
            return name
    return "Helm" if labels.get(_MANAGED_BY) == "Helm" else ""
