"""`release-all`: before an uninstall, take everything of ours off the cluster, so that nothing stays gated or paused.

In this order: our pause, annotation and label from Deployments; our holds from ResourceClaims; our DeviceTaintRules; our
gate and guard from pods; our finalizer from AcceleratorRollouts. What others own stays: their gates, their pauses, their finalizers. A
deletion cost that we set stays, too: it only orders pods of one ReplicaSet. The operator must not run meanwhile, or it
would put all of it back.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from accelerator_rollout.cli.cluster import JSON_PATCH, STRATEGIC, Cluster, Raw
from accelerator_rollout.cli.gating import has_gate, opening
from accelerator_rollout.errors import ConflictError, GoneError, OperatorError
from accelerator_rollout.names import (
    API_VERSION,
    FINALIZER,
    GATE,
    GATE_LABEL,
    GATE_LABEL_VALUE,
    GROUP,
    GUARD_FINALIZER,
    MANAGED_LABEL,
    OPERATOR_SELECTOR,
    PARKED_ANNOTATION,
    PLURAL,
    RESERVED_BY_LABEL,
    RESERVED_IN_LABEL,
)
from accelerator_rollout.observe.kinds import SOURCES, Kind

_OURS: Final = f"/apis/{API_VERSION}"
_TEMPLATED: Final = ("deployments", "statefulsets", "daemonsets")


@dataclass(frozen=True, slots=True)
class Release:
    """One thing to take off: what it is for people, and the patch that does it; or with `delete` the whole object."""

    text: str
    path: str
    body: Raw | list[Raw]
    content: str
    delete: bool = False


def main(arguments: argparse.Namespace, write: Callable[[str], None] = print) -> int:
    """Run the command; return 0 only if nothing of ours was left in the end."""
    try:
        cluster = Cluster.connect(arguments.kubeconfig, arguments.context)
        return ReleaseAll(cluster, arguments.namespace or "", write).run(
            dry_run=arguments.dry_run, confirmed=arguments.yes
        )
    except OperatorError as error:
        print(f"accelerator-rollout: {error}", file=sys.stderr)
        return 1


class ReleaseAll:
    """The command over one namespace, or ("") all of them."""

    def __init__(self, cluster: Cluster, namespace: str, write: Callable[[str], None]) -> None:
        self._cluster, self._namespace, self._write = cluster, namespace, write

    def run(self, *, dry_run: bool, confirmed: bool) -> int:
        """Say what is to be done, ask, do it, and look again."""
        running = self._running()
        todo = list(self._all())
        where = f"namespace {self._namespace}" if self._namespace else "all namespaces"
        self._write(f"In {where} of {self._cluster.title}:")
        for release in todo:
            self._write(f"  {release.text}")
        if not todo:
            self._write("  nothing of ours is there")
        self._warn()
        for line in running:
            self._write(line)
        if dry_run:
            self._write("Nothing was done (--dry-run).")
            return 0
        if running:
            self._write("Nothing was done: stop the operator first.")
            return 1
        if todo and not confirmed and not self._asked():
            self._write("Nothing was done.")
            return 1
        failed = self._do()
        left = list(self._all())
        for release in left:
            self._write(f"still to do: {release.text}")
        if failed or left:
            self._write("Not everything could be released. Remove the cause, and run this again.")
            return 1
        self._write(f"Released: nothing of ours is left in {where}.")
        return 0

    def _do(self) -> int:
        """Do it step by step, each over a fresh look: a Deployment that moves on makes new pods. Return failures."""
        failed = 0
        for step in self._steps():
            for release in step():
                try:
                    if release.delete:
                        self._cluster.delete(release.path, release.body)
                    else:
                        self._cluster.patch(release.path, release.body, release.content)
                except (GoneError, ConflictError):
                    continue  # it went or changed just now: the last look tells whether something is left
                except OperatorError as error:
                    failed += 1
                    self._write(f"failed: {release.text}: {error}")
                else:
                    self._write(f"done: {release.text}")
        return failed

    def _asked(self) -> bool:
        if not sys.stdin.isatty():
            self._write("Pass --yes to have this done without being asked.")
            return False
        return input("Do all this? [yes/no] ").strip().lower() in ("y", "yes")

    # What there is

    def _all(self) -> Iterator[Release]:
        for step in self._steps():
            yield from step()

    def _steps(self) -> tuple[Callable[[], Iterator[Release]], ...]:
        # The finalizers last: with one of them goes the object that answers for everything else.
        return (
            self._deployments,
            self._claims,
            self._reservations,
            self._pods,
            self._guards,
            self._rollouts,
        )

    def _deployments(self) -> Iterator[Release]:
        for raw in self._list("/apis/apps/v1", "deployments"):
            meta = raw["metadata"]
            parked = PARKED_ANNOTATION in (meta.get("annotations") or {})
            managed = MANAGED_LABEL in (meta.get("labels") or {})
            if not parked and not managed:
                continue
            body: dict[str, Any] = {
                "metadata": {
                    **_same(meta, version=True),
                    "labels": {MANAGED_LABEL: None},
                    "annotations": {PARKED_ANNOTATION: None},
                }
            }
            paused = parked and bool(raw["spec"].get("paused"))
            if paused:
                body["spec"] = {"paused": False}
            # A pause without our annotation is a person's.
            what = "resume, and take our label and annotation off" if paused else "take our label off"
            yield self._release("/apis/apps/v1", "deployments", meta, what, body)

    def _claims(self) -> Iterator[Release]:
        for root, raw in self._all_claims():
            reserved = (raw.get("status") or {}).get("reservedFor") or []
            ours = [
                number
                for number, entry in enumerate(reserved)
                if (entry.get("apiGroup"), entry.get("resource")) == (GROUP, PLURAL)
            ]
            if not ours:
                continue
            meta = raw["metadata"]
            body: list[Raw] = [
                {"op": "test", "path": "/metadata/uid", "value": meta["uid"]},
                {"op": "test", "path": "/metadata/resourceVersion", "value": meta["resourceVersion"]},
            ]
            if len(ours) == len(reserved):
                # Nobody else has the devices: with the last entry the allocation goes, as its controller would do it.
                what = "end our hold, and free its devices without proof that its node let go of them"
                body += [
                    {"op": "remove", "path": f"/status/{field}"} for field in ("reservedFor", "allocation")
                ]
            else:
                what = "end our hold"
                body += [
                    {"op": "remove", "path": f"/status/reservedFor/{number}"} for number in reversed(ours)
                ]
            one = self._release(root, "resourceclaims", meta, what, body, JSON_PATCH)
            yield replace(one, path=f"{one.path}/status")

    def _all_claims(self) -> Iterator[tuple[str, Raw]]:
        """Yield all claims with where they are found: in the newest version that is served."""
        for version in SOURCES[Kind.CLAIMS].versions:
            root = f"/apis/{SOURCES[Kind.CLAIMS].group}/{version}"
            found = [(root, raw) for raw in self._list(root, "resourceclaims")]
            if found:
                yield from found
                return

    def _reservations(self) -> Iterator[Release]:
        label = RESERVED_BY_LABEL
        if self._namespace:
            label += f",{RESERVED_IN_LABEL}={self._namespace}"
        for version in SOURCES[Kind.TAINT_RULES].versions:
            root = f"/apis/{SOURCES[Kind.TAINT_RULES].group}/{version}/{Kind.TAINT_RULES}"
            found = list(self._cluster.each(root, labelSelector=label))
            for raw in found:
                meta = raw["metadata"]
                text = f"{Kind.TAINT_RULES} {meta['name']}: delete it, which reserves a device"
                body = {"preconditions": {"uid": meta["uid"]}}
                yield Release(text, f"{root}/{meta['name']}", body, "application/json", delete=True)
            if found:
                return

    def _pods(self) -> Iterator[Release]:
        # A gated pod is always Pending, and most pods of a cluster are not.
        for raw in self._list("/api/v1", "pods", fieldSelector="status.phase=Pending"):
            if not has_gate(raw["spec"]):
                continue
            meta = raw["metadata"]
            yield self._release("/api/v1", "pods", meta, "open our gate", opening(meta), STRATEGIC)

    def _guards(self) -> Iterator[Release]:
        for raw in self._list("/api/v1", "pods"):
            if GUARD_FINALIZER in (raw["metadata"].get("finalizers") or []):
                same = _same(raw["metadata"])
                body = {"metadata": {**same, "$deleteFromPrimitiveList/finalizers": [GUARD_FINALIZER]}}
                yield self._release("/api/v1", "pods", raw["metadata"], "take our guard off", body, STRATEGIC)

    def _rollouts(self) -> Iterator[Release]:
        for raw in self._list(_OURS, PLURAL):
            meta = raw["metadata"]
            finalizers = meta.get("finalizers") or []
            if FINALIZER in finalizers:
                kept = [f for f in finalizers if f != FINALIZER]
                body = {"metadata": {**_same(meta, version=True), "finalizers": kept}}
                yield self._release(_OURS, PLURAL, meta, "take our finalizer off", body)

    def _release(
        self,
        root: str,
        plural: str,
        meta: Raw,
        what: str,
        body: Raw | list[Raw],
        content: str = "application/merge-patch+json",
    ) -> Release:
        space, name = meta["namespace"], meta["name"]
        path = f"{root}/namespaces/{space}/{plural}/{name}"
        return Release(f"{plural} {space}/{name}: {what}", path, body, content)

    def _list(self, root: str, plural: str, **params: str) -> Iterable[Raw]:
        scope = f"/namespaces/{self._namespace}" if self._namespace else ""
        return self._cluster.each(f"{root}{scope}/{plural}", **params)

    # What else to know

    def _warn(self) -> None:
        """Name the workloads whose future pods will be gated although nobody opens gates any more."""
        by_label = False
        for plural in _TEMPLATED:
            for raw in self._list("/apis/apps/v1", plural):
                template, meta = raw["spec"]["template"], raw["metadata"]
                labels = (template.get("metadata") or {}).get("labels") or {}
                by_label = by_label or labels.get(GATE_LABEL) == GATE_LABEL_VALUE
                if has_gate(template.get("spec") or {}):
                    self._write(
                        f"warning: the template of {plural} {meta['namespace']}/{meta['name']} carries our gate: "
                        "without the operator its future pods stay gated. To remove it (this starts a rollout):\n"
                        f"  {_command(plural, meta)}"
                    )
        if by_label:
            self._write(
                f"warning: pods with the label {GATE_LABEL}={GATE_LABEL_VALUE} come gated while our policy is there. "
                f"Remove it before this command:\n"
                f"  kubectl delete mutatingadmissionpolicybinding gate.{GATE.partition('/')[0]}"
            )

    def _running(self) -> list[str]:
        try:
            found = list(self._cluster.each("/apis/apps/v1/deployments", labelSelector=OPERATOR_SELECTOR))
        except OperatorError as error:
            self._write(f"warning: make sure that no operator runs; it cannot be told here ({error})")
            return []
        return [
            f"warning: the operator {d['metadata']['namespace']}/{d['metadata']['name']} is running and would put all "
            f"this back. To stop it:\n  kubectl scale deployment {d['metadata']['name']} "
            f"--namespace {d['metadata']['namespace']} --replicas 0"
            for d in found
            if d["spec"].get("replicas") or (d.get("status") or {}).get("replicas")
        ]


def _same(meta: Raw, *, version: bool = False) -> dict[str, Any]:
    """Return what makes a patch fail on any other object than this one, or on another state of it."""
    same = {"uid": meta["uid"]}
    return same | {"resourceVersion": meta["resourceVersion"]} if version else same


def _command(plural: str, meta: Raw) -> str:
    patch = (
        f'{{"spec":{{"template":{{"spec":{{"schedulingGates":[{{"name":"{GATE}","$patch":"delete"}}]}}}}}}}}'
    )
    return f"kubectl patch {plural} {meta['name']} --namespace {meta['namespace']} --type strategic --patch '{patch}'"
