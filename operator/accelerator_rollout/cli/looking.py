"""The commands that only look: list, get, status and history."""

import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, Final

import click
from rich.text import Text

from accelerator_rollout.api.models import PastReplacement, PastRollout, RolloutObject
from accelerator_rollout.cli import world
from accelerator_rollout.cli.ages import age, duration, length
from accelerator_rollout.cli.drawing import draw, header, tree
from accelerator_rollout.cli.screen import STYLES
from accelerator_rollout.cli.session import Session, about_a_cluster, names_of_rollouts, output, readable
from accelerator_rollout.cli.views import Headline, RolloutView, finished, headline, picture
from accelerator_rollout.cli.watching import changes
from accelerator_rollout.decide.explain import Verdict
from accelerator_rollout.errors import ForbiddenError, GoneError, OperatorError

_WIDE: Final = "wide"


class Length(click.ParamType[timedelta]):
    """A length of time, such as 90s or 5m."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Read it."""
        if isinstance(value, timedelta):
            return value
        try:
            return duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command(name="list")
@click.option("--all-namespaces", "-A", is_flag=True, help="Of all namespaces.")
@output("wide", "json", "yaml")
@about_a_cluster
def list_(*, session: Session, all_namespaces: bool, output: str | None) -> int:
    """List the AcceleratorRollouts of a namespace, or of all."""
    found = session.listed("" if all_namespaces else None)
    if output in ("json", "yaml"):
        session.screen.data({"apiVersion": "v1", "kind": "List", "items": found}, output)
        return 0
    if not found:
        where = "any namespace" if all_namespaces else f"namespace {session.namespace}"
        click.echo(f"No AcceleratorRollouts in {where}.", err=True)
        return 0
    titles = ["NAME", "WORKLOAD", "UPDATED", "AVAILABLE", "STATE", "SINCE", "REASON"]
    rows = [_row(raw, session.now(), wide=output == _WIDE, spaces=all_namespaces) for raw in found]
    titles = (["NAMESPACE"] if all_namespaces else []) + titles
    session.screen.table(titles + (["REVISION", "AGE", "MESSAGE"] if output == _WIDE else []), rows)
    return 0


def _row(raw: Any, now: datetime, *, wide: bool, spaces: bool) -> list[str | Text]:
    meta = raw["metadata"]
    place = [meta.get("namespace", "")] if spaces else []
    try:
        view = headline(readable(raw))
    except OperatorError as error:
        unknown: list[str | Text] = [*place, meta["name"], "", "", "", "Unknown", "", "SpecUnreadable"]
        return unknown + (["", "", str(error)] if wide else [])
    row: list[str | Text] = [
        *place,
        view.name,
        view.workload,
        f"{view.updated}/{view.desired}",
        f"{view.available}/{view.desired}",
        view.verdict,
        age(view.since, now),
        f"{view.reason} (paused)" if view.paused and view.reason != "Paused" else view.reason,
    ]
    return row + ([view.revision, age(view.created, now), view.message] if wide else [])


@click.command()
@click.argument("name", shell_complete=names_of_rollouts)
@click.option(
    "--watch",
    "-w",
    is_flag=True,
    help="Keep it on the screen; without a terminal, write it again at each change.",
)
@output("wide", "json", "yaml")
@about_a_cluster
def get(*, session: Session, name: str, watch: bool, output: str | None) -> int:
    """Show an AcceleratorRollout with its revisions, pods, claims and devices, and the stage of each replacement."""
    if output in ("json", "yaml"):
        if watch:
            raise click.UsageError(
                "--watch shows text: leave -o json or -o yaml out, or use kubectl get arol -w -o json"
            )
        session.screen.data(dict(session.raw(name)), output)
        return 0
    wide = output == _WIDE
    if watch:
        from accelerator_rollout.cli import live  # noqa: PLC0415 - loaded for this alone

        return live.show(session, name, wide=wide)
    _, rollout = session.rollout(name)
    show(session, near_picture(session, rollout), wide=wide)
    return 0


def near_picture(session: Session, rollout: RolloutObject) -> RolloutView:
    """Return the rollout with what its namespace shows. Raises OperatorError if it went meanwhile."""
    now = session.now()
    found = world.near(session.cluster, session.namespace, now)
    snapshot = found.present(rollout, now)
    for kind, why in sorted(found.unread.items()):
        click.echo(f"warning: {kind} are not shown: {why}", err=True)
    return picture(snapshot)


def show(session: Session, view: RolloutView, *, wide: bool) -> None:
    """Write the header and the whole tree."""
    now = session.now()
    for line in header(view.headline, now):
        session.screen.line(line)
    session.screen.line()
    session.screen.put(draw(tree(view, now), wide=wide))


@click.command()
@click.argument("name", shell_complete=names_of_rollouts)
@click.option("--watch", "-w", is_flag=True, help="Wait until the rollout is complete (0), or stalled (1).")
@click.option(
    "--timeout",
    type=Length(),
    help="With --watch: how long to wait, such as 90s or 10m; then 1. Default: for ever.",
)
@output("json", "yaml")
@about_a_cluster
def status(*, session: Session, name: str, watch: bool, timeout: timedelta | None, output: str | None) -> int:
    """Say in a line where a rollout stands.

    With --watch, as `kubectl rollout status`: 0 once it is complete, 1 as soon as it is stalled or the timeout has passed.
    """
    if timeout is not None and not watch:
        raise click.UsageError("--timeout says how long --watch waits: give both")
    raw, rollout = session.rollout(name)
    if not watch:
        _tell(session, headline(rollout), output)
        return 0
    return _await_end(session, raw["metadata"]["uid"], rollout, timeout, output)


def _await_end(
    session: Session, uid: str, rollout: RolloutObject, timeout: timedelta | None, output: str | None
) -> int:
    deadline = time.monotonic() + timeout.total_seconds() if timeout is not None else None
    before = ""
    for raw in changes(session.cluster, session.path(rollout.name), deadline):
        if raw is None or raw["metadata"]["uid"] != uid:
            raise OperatorError(f"AcceleratorRollout {rollout.name} was deleted")
        rollout = readable(raw)
        view = headline(rollout)
        verdict = finished(rollout)
        if verdict is Verdict.COMPLETE and not _newest(session, rollout):
            verdict = None
        line = _line(view)
        if line != before and (output is None or verdict is not None):
            _tell(session, view, output)
        before = line
        if verdict is not None:
            return 0 if verdict is Verdict.COMPLETE else 1
    click.echo(
        f"accelerator-rollout: {rollout.name} is not complete after {length(timeout.total_seconds() if timeout else 0)}. "
        f"To see why: accelerator-rollout why {rollout.name} -n {session.namespace}",
        err=True,
    )
    return 1


def _newest(session: Session, rollout: RolloutObject) -> bool:
    """Return whether the status speaks of the workload as it is: a change of a moment ago is not complete yet."""
    ref = rollout.spec.workload_ref
    path = f"/apis/{ref.api_version}/namespaces/{rollout.namespace}/{ref.kind.lower()}s/{ref.name}"
    try:
        generation = session.cluster.get(path)["metadata"].get("generation") or 0
    except (ForbiddenError, GoneError):
        return True  # whoever may not look has the operator's word
    return bool(generation <= rollout.status.observed_workload_generation)


def _tell(session: Session, view: Headline, output: str | None) -> None:
    if output is not None:
        session.screen.data(plain(asdict(view)), output)
        return
    session.screen.line(Text(_line(view), style=STYLES.get(view.verdict, "")))
    session.screen.console.file.flush()


def _line(view: Headline) -> str:
    reason = f" ({view.reason})" if view.reason != view.verdict else ""
    return f"{view.name}: {view.verdict}{reason}: {view.message or f'{view.updated} of {view.desired} pods updated'}"


def plain(value: Any) -> Any:
    """Return the value with times as the API writes them, and as nothing but lists, mappings and scalars."""
    match value:
        case dict():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case datetime():
            return value.strftime("%Y-%m-%dT%H:%M:%SZ")
        case str():
            return str(value)
        case _:
            return value


@click.command()
@click.argument("name", shell_complete=names_of_rollouts)
@output("wide", "json", "yaml")
@about_a_cluster
def history(*, session: Session, name: str, output: str | None) -> int:
    """Show the last rollouts; with -o wide each replacement and how long its stages took."""
    _, rollout = session.rollout(name)
    past = rollout.status.history
    if output in ("json", "yaml"):
        session.screen.data([one.to_raw() for one in past], output)
        return 0
    if not past:
        click.echo(f"{rollout.name} has not replaced any pods yet.", err=True)
        return 0
    now = session.now()
    if output == _WIDE:
        titles = ("REVISION", "POD", "REPLACED BY", "TOOK", "PROOF", "STAGES")
        session.screen.table(titles, (row for one in past for row in _details(one)))
        return 0
    titles = ("REVISION", "OUTCOME", "STARTED", "TOOK", "PODS", "WHY")
    session.screen.table(titles, ([*_past(one, now)] for one in past))
    return 0


def _past(one: PastRollout, now: datetime) -> Iterator[str]:
    yield one.revision
    yield str(one.outcome)
    yield f"{age(one.started_at, now)} ago"
    yield length(((one.finished_at or now) - one.started_at).total_seconds())
    yield str(len(one.replacements))
    yield f"restart of {one.restarted_at:%Y-%m-%d %H:%M:%S} UTC" if one.restarted_at else "new pod template"


def _details(one: PastRollout) -> Iterator[tuple[str, ...]]:
    if not one.replacements:
        yield one.revision, "(none)", "", "", "", ""
    for pod in one.replacements:
        killed = " (killed after its grace period)" if pod.killed_after_grace else ""
        took = length(sum(stage.seconds for stage in pod.stages))
        yield (
            one.revision,
            pod.pod_name,
            pod.replaced_by,
            took,
            f"{pod.proof or 'none'}{killed}",
            _stages(pod),
        )


def _stages(pod: PastReplacement) -> str:
    return " ".join(f"{stage.stage}={length(stage.seconds)}" for stage in pod.stages)
