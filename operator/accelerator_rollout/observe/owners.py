"""Who writes the workload's manifest, and would put back what we change: told from the marks that writers leave."""

import json
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
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_MANAGED_BY: Final = "app.kubernetes.io/managed-by"


def owner_of_templates(meta: Raw) -> str:
    """Return the name of the tool; "" if none has left its mark."""
    labels, annotations = read.mapping(meta, "labels"), read.mapping(meta, "annotations")
    managers = {entry.get("manager") for entry in read.items(meta, "managedFields")}
    for name, keys, known in _MARKS:
        if any(key in labels or key in annotations for key in keys) or not managers.isdisjoint(known):
            return name
    return "Helm" if labels.get(_MANAGED_BY) == "Helm" else ""


def applier_of_pause(meta: Raw) -> str:
    """Return who applies a manifest that says something about spec.paused; "" if nobody does.

    Server-side, the entry of operation Apply owns the field. What an admission policy set in the very same write is owned by
    an entry of operation Update, so it is not taken for the manifest's. Client-side, the manifest is in an annotation.
    """
    for entry in read.items(meta, "managedFields"):
        fields = read.mapping(read.mapping(entry, "fieldsV1"), "f:spec")
        if entry.get("operation") == "Apply" and "f:paused" in fields:
            return str(entry.get("manager") or "somebody")
    applied = read.mapping(meta, "annotations").get(_LAST_APPLIED)
    if not isinstance(applied, str) or '"paused"' not in applied:
        return ""
    try:
        manifest = json.loads(applied)
    except ValueError:
        return ""
    spec = manifest.get("spec") if isinstance(manifest, dict) else None
    return "kubectl apply" if isinstance(spec, dict) and "paused" in spec else ""
