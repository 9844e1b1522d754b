"""What every command about a cluster needs: the options that kubectl has, the cluster behind them, and the object meant."""

import difflib
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import click

from accelerator_rollout.api.models import RolloutObject, Unreadable
from accelerator_rollout.api.parse import parse
from accelerator_rollout.cli.cluster import Cluster, Raw
from accelerator_rollout.cli.screen import Screen
from accelerator_rollout.errors import ForbiddenError, GoneError, OperatorError
from accelerator_rollout.names import API_VERSION, CRD_NAME, KIND, PLURAL

ROOT: Final = f"/apis/{API_VERSION}"
_PREFIXES: Final = (PLURAL, "acceleratorrollout", "arol", f"{PLURAL}.accelerator-rollout.dev")


class NotServedError(OperatorError):
    """The cluster does not know our kind."""


@dataclass(frozen=True, slots=True)
class Session:
    """One command's cluster, namespace and screen."""

    cluster: Cluster
    namespace: str
    screen: Screen

    @staticmethod
    def now() -> datetime:
        """Return the time, by which ages are told."""
        return datetime.now(UTC)

    def listed(self, namespace: str | None = None) -> list[Raw]:
        """Return the AcceleratorRollouts of the session's namespace, of another, or ("") of all."""
        space = self.namespace if namespace is None else namespace
        path = f"{ROOT}/namespaces/{space}/{PLURAL}" if space else f"{ROOT}/{PLURAL}"
        try:
            return sorted(
                self.cluster.every(path),
                key=lambda raw: (raw["metadata"].get("namespace", ""), raw["metadata"]["name"]),
            )
        except GoneError as error:
            raise NotServedError(
                f"{self.cluster.title} does not know {KIND}s. To install the kind and the operator: "
                "kubectl apply --server-side -k deploy/kustomize/base (the kind alone: accelerator-rollout crd | "
                "kubectl apply --server-side -f -)"
            ) from error
        except ForbiddenError as error:
            raise ForbiddenError(self._no_right("list", space, error)) from error

    def raw(self, name: str) -> Raw:
        """Return the AcceleratorRollout of this name; `arol/NAME` will do. Raises OperatorError with a suggestion."""
        name = _bare(name)
        try:
            return self.cluster.get(self.path(name))
        except GoneError as error:
            raise OperatorError(self._missing(name)) from error
        except ForbiddenError as error:
            raise ForbiddenError(self._no_right("get", self.namespace, error)) from error

    def rollout(self, name: str) -> tuple[Raw, RolloutObject]:
        """Return it raw and read. Raises OperatorError if this version cannot read it."""
        raw = self.raw(name)
        return raw, readable(raw)

    def path(self, name: str) -> str:
        """Return where the object of this name is."""
        return f"{ROOT}/namespaces/{self.namespace}/{PLURAL}/{_bare(name)}"

    def _missing(self, name: str) -> str:
        here = [raw["metadata"]["name"] for raw in self.listed()]
        text = f"there is no {KIND} {name} in namespace {self.namespace}."
        near = difflib.get_close_matches(name, here, n=1)
        if near:
            return f"{text} Did you mean {near[0]}?"
        elsewhere = self._elsewhere(name)
        if elsewhere:
            return f"{text} There is one in namespace {', '.join(elsewhere)}: name it with -n"
        if here:
            return f"{text} There are: {', '.join(here[:10])}"
        return f"{text} That namespace has none; `accelerator-rollout list -A` shows all that you may see"

    def _elsewhere(self, name: str) -> list[str]:
        try:
            found = self.listed("")
        except OperatorError:
            return []  # whoever may not look there is not told
        return [raw["metadata"]["namespace"] for raw in found if raw["metadata"]["name"] == name]

    def _no_right(self, verb: str, namespace: str, error: Exception) -> str:
        where = f"-n {namespace}" if namespace else "--all-namespaces"
        return f"{error}. To see what you may do: kubectl auth can-i {verb} {CRD_NAME} {where}"


def readable(raw: Raw) -> RolloutObject:
    """Return the object as this version reads it. Raises OperatorError that names the field."""
    found = parse(raw)
    if isinstance(found, Unreadable):
        raise OperatorError(f"{KIND} {found.name} cannot be read by this version: {found.message}")
    return found


def _bare(name: str) -> str:
    kind, _, rest = name.rpartition("/")
    return rest if kind.lower() in _PREFIXES else name


def about_a_cluster(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that kubectl has for it, before or after its name; it is called with a `session`."""

    @click.option("--kubeconfig", help="Path of the kubeconfig; default: kubectl's own rules.")
    @click.option("--context", help="Context of the kubeconfig; default: its current one.")
    @click.option("--namespace", "-n", help="Namespace; default: the context's.")
    @click.option("--no-color", is_flag=True, help="No colours; NO_COLOR in the environment says the same.")
    @functools.wraps(function)
    def command(
        *args: Any,
        kubeconfig: str | None,
        context: str | None,
        namespace: str | None,
        no_color: bool,
        **rest: Any,
    ) -> Any:
        before = click.get_current_context().find_root().params
        cluster = Cluster.connect(kubeconfig or before.get("kubeconfig"), context or before.get("context"))
        session = Session(
            cluster,
            namespace or before.get("namespace") or cluster.namespace,
            Screen(plain=no_color or bool(before.get("no_color"))),
        )
        return function(*args, session=session, **rest)

    return command


def names_of_rollouts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the names that begin so, for the shell; none if they cannot be had."""
    del param
    given = {**ctx.find_root().params, **{k: v for k, v in ctx.params.items() if v}}
    try:
        cluster = Cluster.connect(given.get("kubeconfig"), given.get("context"))
        space = given.get("namespace") or cluster.namespace
        found = cluster.get(f"{ROOT}/namespaces/{space}/{PLURAL}", limit="200").get("items") or ()
    except OperatorError:
        return []
    return [name for raw in found if (name := str(raw["metadata"]["name"])).startswith(incomplete)]


def output(*formats: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the option -o with these formats."""
    return click.option("--output", "-o", type=click.Choice(formats), help=_said(formats))


def _said(formats: Sequence[str]) -> str:
    return f"{', '.join(formats[:-1])} or {formats[-1]} instead of the usual text."
