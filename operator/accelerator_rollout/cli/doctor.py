"""`doctor`: what a cluster needs for rollouts, whether it is there, and how to get what is missing. Only reads and reviews."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

import click

from accelerator_rollout.act.rights import HOLDS, NEEDED, RESERVATIONS, TEMPLATES, Right
from accelerator_rollout.api.models import RolloutObject
from accelerator_rollout.api.parse import parse
from accelerator_rollout.cli import world
from accelerator_rollout.cli.cluster import Cluster, Raw
from accelerator_rollout.cli.looking import plain
from accelerator_rollout.cli.session import Session, about_a_cluster, output
from accelerator_rollout.decide.explain import Verdict, judge
from accelerator_rollout.errors import ForbiddenError, GoneError, OperatorError
from accelerator_rollout.names import GROUP, OPERATOR_SELECTOR, PARKING_POLICY
from accelerator_rollout.observe.kinds import SOURCES, Kind

_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
_GATING_POLICY: Final = f"gate.{GROUP}"
_HOLDS_SINCE: Final = (1, 36)
_SUPPORTED_SINCE: Final = (1, 32)
_BASE: Final = "kubectl apply --server-side -k deploy/kustomize/base"


class Grade(StrEnum):
    """What was found."""

    OK = "ok"
    WARNING = "warning"  # something optional is missing, or cannot be told
    MISSING = "missing"  # rollouts do not work without it


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; `todo` says how to get it, where it is not there."""

    grade: Grade
    what: str
    found: str
    todo: str = ""


@click.command()
@output("json", "yaml")
@about_a_cluster
def doctor(*, session: Session, output: str | None) -> int:
    """Look at the cluster, the operator, its rights, the policies and the drivers; 1 if something needed is missing."""
    findings = list(examine(session))
    if output is not None:
        session.screen.data(plain([asdict(one) for one in findings]), output)
    else:
        session.screen.line(f"In {session.cluster.title}:")
        session.screen.table(("", "WHAT", "FOUND"), ((str(f.grade), f.what, f.found) for f in findings))
        for one in findings:
            if one.todo:
                session.screen.line()
                session.screen.line(f"{one.what}: {one.todo}")
    return int(any(one.grade is Grade.MISSING for one in findings))


def examine(session: Session) -> Iterator[Finding]:
    """Yield what was found. What may not be looked at is a warning, and ends nothing."""
    cluster = session.cluster
    version = _version(cluster)
    said = ".".join(map(str, version))
    if version < _SUPPORTED_SINCE:
        yield Finding(
            Grade.MISSING,
            "Kubernetes",
            said,
            "devices are handed out by DRA from 1.32 on: upgrade the cluster",
        )
    elif version < _HOLDS_SINCE:
        yield Finding(Grade.WARNING, "Kubernetes", said, "holds and the parking policy need 1.36")
    else:
        yield Finding(Grade.OK, "Kubernetes", said)
    served = world.serve(cluster)
    for kind in (Kind.ROLLOUTS, Kind.CLAIMS, Kind.SLICES, Kind.TAINT_RULES):
        source = SOURCES[kind]
        if kind in served:
            yield Finding(Grade.OK, source.title, f"{source.group}/{served[kind].version}")
        elif source.optional:
            yield Finding(
                Grade.WARNING,
                source.title,
                "not served",
                "only release.reservation needs it: 1.36, behind a feature gate before 1.37",
            )
        else:
            how = _BASE if kind is Kind.ROLLOUTS else "turn on DynamicResourceAllocation and its API group"
            yield Finding(Grade.MISSING, source.title, "not served", how)
    yield from _guarded("operator", _operator(cluster))
    yield from _guarded("policies", _policies(cluster))
    if Kind.SLICES in served:
        yield from _guarded("drivers", _drivers(cluster, served[Kind.SLICES].path()))
    if Kind.ROLLOUTS in served:
        yield from _guarded("rollouts", _rollouts(session))


def _guarded(what: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    try:
        yield from findings
    except ForbiddenError as error:
        yield Finding(Grade.WARNING, what, "cannot be looked at", str(error))


def _version(cluster: Cluster) -> tuple[int, int]:
    found = cluster.get("/version")
    try:
        return int(found["major"]), int("".join(c for c in found["minor"] if c.isdigit()))
    except (KeyError, ValueError) as error:
        raise OperatorError(f"{cluster.title} does not tell its version: is it an API server?") from error


def _operator(cluster: Cluster) -> Iterator[Finding]:
    found = list(cluster.each("/apis/apps/v1/deployments", labelSelector=OPERATOR_SELECTOR))
    if not found:
        yield Finding(Grade.MISSING, "operator", "no Deployment with its labels", _BASE)
        return
    for raw in found:
        meta = raw["metadata"]
        name, space = meta["name"], meta["namespace"]
        ready = (raw.get("status") or {}).get("readyReplicas") or 0
        if ready:
            yield Finding(Grade.OK, "operator", f"{space}/{name}, {ready} ready")
        else:
            yield Finding(
                Grade.MISSING,
                "operator",
                f"{space}/{name} is not ready",
                f"kubectl logs deployment/{name} --namespace {space}",
            )
        account = raw["spec"]["template"]["spec"].get("serviceAccountName") or "default"
        yield from _rights(cluster, f"system:serviceaccount:{space}:{account}")


def _rights(cluster: Cluster, user: str) -> Iterator[Finding]:
    roles: tuple[tuple[str, tuple[Right, ...], Grade, str], ...] = (
        ("rights", NEEDED, Grade.MISSING, _BASE),
        (
            "role for holds",
            HOLDS,
            Grade.WARNING,
            "kubectl apply --server-side -k deploy/kustomize/overlays/hold",
        ),
        (
            "role for reservations",
            RESERVATIONS,
            Grade.WARNING,
            "kubectl apply --server-side -k deploy/kustomize/overlays/reservation",
        ),
        (
            "role for undo",
            TEMPLATES,
            Grade.WARNING,
            "kubectl apply --server-side -k deploy/kustomize/overlays/undo",
        ),
    )
    for what, rights, grade, how in roles:
        lacking = [str(right) for right in rights if not _may(cluster, user, right)]
        if lacking:
            yield Finding(grade, what, f"{user} may not {', '.join(lacking)}", how)
        else:
            yield Finding(Grade.OK, what, f"{user} has them")


def _may(cluster: Cluster, user: str, right: Right) -> bool:
    asked = {
        "verb": right.verb,
        "group": right.group,
        "resource": right.resource,
        "subresource": right.subresource,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": user,
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "resourceAttributes": asked,
        },
    }
    answer = cluster.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool((answer.get("status") or {}).get("allowed"))


def _policies(cluster: Cluster) -> Iterator[Finding]:
    for name, what, for_what in (
        (_GATING_POLICY, "gating policy", "pods labelled for it are gated without a gate in their template"),
        (PARKING_POLICY, "parking policy", "Deployments are paused in the write that changes their template"),
    ):
        lacking = [
            kind
            for kind in ("policies", "policybindings")
            if not _there(cluster, f"{_ADMISSION}/mutatingadmission{kind}/{name}")
        ]
        if lacking:
            how = f"with it, {for_what}: kubectl apply --server-side -k deploy/admission (1.36 and newer)"
            yield Finding(Grade.WARNING, what, f"no mutatingadmission{lacking[0]} {name}", how)
        else:
            yield Finding(Grade.OK, what, name)


def _there(cluster: Cluster, path: str) -> bool:
    try:
        cluster.get(path)
    except GoneError:
        return False
    return True


def _drivers(cluster: Cluster, path: str) -> Iterator[Finding]:
    pools: dict[str, dict[str, list[Raw]]] = {}
    for raw in cluster.each(path):
        spec = raw["spec"]
        pools.setdefault(spec["driver"], {}).setdefault(spec["pool"]["name"], []).append(spec)
    if not pools:
        yield Finding(
            Grade.WARNING,
            "drivers",
            "no ResourceSlice",
            "no DRA driver publishes devices: does its DaemonSet run?",
        )
    for driver, found in sorted(pools.items()):
        partial = sorted(name for name, slices in found.items() if not _complete(slices))
        devices = sum(len(s.get("devices") or []) for slices in found.values() for s in slices)
        text = f"{devices} devices in {len(found)} pools"
        if partial:
            how = f"pools without all their slices: {', '.join(partial[:5])}. Restart the driver there if that stays"
            yield Finding(Grade.WARNING, f"driver {driver}", text, how)
        else:
            yield Finding(Grade.OK, f"driver {driver}", text)


def _complete(slices: list[Any]) -> bool:
    newest = max(s["pool"]["generation"] for s in slices)
    current = [s for s in slices if s["pool"]["generation"] == newest]
    return bool(len(current) == current[0]["pool"]["resourceSliceCount"])


def _rollouts(session: Session) -> Iterator[Finding]:
    stalled: list[str] = []
    unseen: list[str] = []
    found = session.listed("")
    for raw in found:
        rollout = parse(raw)
        name = f"{rollout.namespace}/{rollout.name}"
        if not isinstance(rollout, RolloutObject) or rollout.status.observed_generation < rollout.generation:
            unseen.append(name)
        elif judge(rollout, rollout.status)[0] is Verdict.STALLED:
            stalled.append(name)
    if unseen:
        yield Finding(
            Grade.WARNING,
            "not looked at",
            ", ".join(unseen[:5]),
            "their newest spec was not seen, or cannot be read: see the operator's log",
        )
    if stalled:
        yield Finding(
            Grade.WARNING, "stalled", ", ".join(stalled[:5]), "accelerator-rollout why NAME -n NAMESPACE"
        )
    if not unseen and not stalled:
        yield Finding(Grade.OK, "rollouts", f"{len(found)}, none stalled")
