"""What GitOps tools make of an AcceleratorRollout, by the very files of deploy/gitops that users give to them.

Argo CD runs a Lua script with the object as global `obj`; Flux asks CEL expressions with the object's fields as variables.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import cel
import lupa.lua51  # the Lua of Argo CD's interpreter
import yaml

from lab.pages import ROOT

GITOPS: Final = ROOT / "deploy" / "gitops"
HEALTH: Final = GITOPS / "argocd" / "health.lua"
ACTIONS: Final = GITOPS / "argocd" / "actions"
FLUX: Final = GITOPS / "flux" / "llm-inference-worker.yaml"

_LOADED: Final = ("_G", "_VERSION", "table", "package")  # besides functions: what a health script finds
_HEALTHS: Final = ("Healthy", "Progressing", "Degraded", "Suspended", "Missing", "Unknown")


class Argo:
    """Argo CD, as far as it judges a resource by a script. Each object gets an interpreter of its own, as there."""

    def __init__(self, script: str) -> None:
        self._script = script

    @classmethod
    def of(cls, path: Path = HEALTH) -> "Argo":
        """Return what judges by the script of this file."""
        return cls(path.read_text(encoding="utf-8"))

    def health(self, body: Mapping[str, Any]) -> tuple[str, str]:
        """Return health and message."""
        found = self.run(body)
        health, message = found["status"], found["message"]
        assert health in _HEALTHS, f"no health of Argo CD: {health}"
        return str(health), str(message or "")

    def run(self, body: Mapping[str, Any]) -> Any:
        """Return what the script returns of the object."""
        lua = lupa.lua51.LuaRuntime(register_eval=False, register_builtins=False)
        known = lua.globals()
        for name in [n for n in known if lupa.lua51.lua_type(known[n]) != "function" and n not in _LOADED]:
            known[name] = None
        lua.execute("getmetatable('').__index = nil")  # ("a"):upper() is the string library, too
        known.obj = lua.table_from(_told(body), recursive=True)
        return _read(lua.execute(self._script))


def _read(value: Any) -> Any:
    """Return the value with tables as mappings; those with nothing but numbers as keys are lists."""
    if lupa.lua51.lua_type(value) != "table":
        return value
    known = {key: _read(value[key]) for key in value}
    return list(known.values()) if known and all(isinstance(key, int) for key in known) else known


def _told(value: Any) -> Any:
    """Return the value without nulls, which Lua's tables cannot hold."""
    if isinstance(value, Mapping):
        return {key: _told(inner) for key, inner in value.items() if inner is not None}
    return [_told(inner) for inner in value] if isinstance(value, list) else value


class Flux:
    """Flux, as far as a Kustomization judges by healthCheckExprs."""

    ORDER: Final = ("inProgress", "failed", "current")  # the first that is true is the answer

    def __init__(self, expressions: Mapping[str, str]) -> None:
        assert "current" in expressions, "Flux demands this one"
        assert set(expressions) <= {"apiVersion", "kind", *self.ORDER}
        self._programs = {name: cel.compile(expressions[name]) for name in self.ORDER if name in expressions}

    @classmethod
    def of(cls, kustomization: Mapping[str, Any], body: Mapping[str, Any]) -> "Flux":
        """Return what judges by the expressions that a Kustomization has for objects like this one."""
        (mine,) = (
            one
            for one in kustomization["spec"]["healthCheckExprs"]
            if (one["apiVersion"], one["kind"]) == (body["apiVersion"], body["kind"])
        )
        return cls(mine)

    def status(self, body: Mapping[str, Any]) -> str:
        """Return Current, Failed or InProgress. Raises RuntimeError where an expression cannot be evaluated."""
        observed = body.get("status", {}).get("observedGeneration")
        if observed is not None and observed != body["metadata"]["generation"]:
            return "InProgress"
        for name, program in self._programs.items():
            if program.execute(dict(body)) is True:
                return name[0].upper() + name[1:]
        return "InProgress"


def kustomization() -> dict[str, Any]:
    """The example for Flux."""
    read: dict[str, Any] = yaml.safe_load(FLUX.read_text(encoding="utf-8"))
    return read
