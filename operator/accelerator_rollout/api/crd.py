"""The CustomResourceDefinition, generated from the models: `python -m accelerator_rollout.api.crd`.

Without a flag it is printed, ready for `kubectl apply --server-side -f -`. `--write` renews the committed
file of the source tree and `--check` fails when that file is not what the models say.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from accelerator_rollout import names
from accelerator_rollout.api import rules
from accelerator_rollout.api.base import Part
from accelerator_rollout.api.models import RolloutSpec, RolloutStatus

COMMITTED: Final = Path(__file__).parents[3] / "crds" / f"{names.PLURAL}.{names.GROUP}.yaml"

_HEADER: Final = (
    "# Generated from the models in operator/accelerator_rollout/api: do not edit, run\n"
    "#   python -m accelerator_rollout.api.crd --write\n"
)

# What a structural schema may say and our models do say. Anything else is a mistake and not passed on.
_COPIED: Final = frozenset(
    {
        "type",
        "format",
        "enum",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "pattern",
        "maxItems",
        "required",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-validations",
    }
)
# `additionalProperties: false` is not structural, and not needed: the API server drops unknown fields anyway.
_DROPPED: Final = frozenset({"title", "additionalProperties", "$defs", "default", "description"})
_NESTED: Final = frozenset({"properties", "items"})


class _Dumper(yaml.SafeDumper):
    """Writes prose and CEL as folded blocks: quoted, their own quotes would be doubled beyond reading."""

    def ignore_aliases(self, data: object) -> bool:
        """Write equal values out each time: an anchor in a manifest helps nobody."""
        return True


def _write_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    folded = len(text) > 80 or "'" in text
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=">" if folded else None)


_Dumper.add_representer(str, _write_text)


def custom_resource_definition() -> dict[str, Any]:
    """Return the whole CustomResourceDefinition as a JSON value."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": names.CRD_NAME},
        "spec": {
            "group": names.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": names.KIND,
                "listKind": f"{names.KIND}List",
                "plural": names.PLURAL,
                "singular": names.SINGULAR,
                "shortNames": [names.SHORT_NAME],
                "categories": [names.CATEGORY],
            },
            "versions": [
                {
                    "name": names.VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "selectableFields": [
                        {"jsonPath": ".spec.workloadRef.kind"},
                        {"jsonPath": ".spec.workloadRef.name"},
                    ],
                    "additionalPrinterColumns": _printer_columns(),
                    "schema": {"openAPIV3Schema": _object_schema()},
                }
            ],
        },
    }


def render() -> str:
    """Return the text of the committed file."""
    return _HEADER + yaml.dump(custom_resource_definition(), Dumper=_Dumper, sort_keys=False, width=110)


def structural_schema(model: type[Part], *, defaults: bool) -> dict[str, Any]:
    """Return the model's schema as the API server wants it: no references, no unions, no titles.

    `defaults` is for the spec alone: a status says what was seen, and nothing is seen by default.
    Raises ValueError for a model that cannot be said structurally.
    """
    source = model.model_json_schema(by_alias=True)
    return _structural(source, source.get("$defs", {}), model.__name__, defaults=defaults)


def _object_schema() -> dict[str, Any]:
    return {
        "type": "object",
        "description": (
            "Replaces the pods of a workload one at a time. A replacement may be scheduled only when the "
            "devices of its predecessor are proven free."
        ),
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": structural_schema(RolloutSpec, defaults=True),
            # Nobody has looked yet: without it, kstatus takes an object without a status for current.
            "status": structural_schema(RolloutStatus, defaults=False)
            | {"default": {"observedGeneration": 0}},
        },
        **rules.validated_by(rules.OBJECT_NAME_FITS),
    }


def _printer_columns() -> list[dict[str, Any]]:
    def column(name: str, path: str, about: str, kind: str = "string", priority: int = 0) -> dict[str, Any]:
        wide = {"priority": priority} if priority else {}
        return {"name": name, "type": kind, "jsonPath": path, "description": about, **wide}

    def condition(kind: str, field: str) -> str:
        return f'.status.conditions[?(@.type=="{kind}")].{field}'

    # Without -o wide, a row is at most 80 characters with a name of 20: the reason of the replacement in flight is the
    # longest cell, and what is not in flight has a reason in Progress alone.
    return [
        column("Ready", condition("Ready", "status"), "All pods at the update revision and healthy."),
        column("Updated", ".status.updatedReplicas", "Pods at the update revision.", "integer"),
        column("Progress", condition("Progressing", "reason"), "The stage, or why nothing moves."),
        column("Why", ".status.replacements[0].reason", "What the first replacement in flight waits for."),
        column("Workload", ".spec.workloadRef.name", "The workload whose pods are replaced.", priority=1),
        column("Kind", ".spec.workloadRef.kind", "Its kind.", priority=1),
        column("Desired", ".status.replicas", "Pods the workload asks for.", "integer", priority=1),
        column("Available", ".status.availableReplicas", "Pods that stay ready.", "integer", priority=1),
        column("Age", ".metadata.creationTimestamp", "Time since creation.", "date", priority=1),
        column("Stalled", condition("Stalled", "reason"), "Why nothing goes on by itself.", priority=1),
        column("Message", condition("Progressing", "message"), "Progress for people.", priority=1),
    ]


def _structural(
    node: Mapping[str, Any], known: Mapping[str, Any], path: str, *, defaults: bool
) -> dict[str, Any]:
    """Turn one node of pydantic's JSON schema into one of a structural schema."""
    node = _resolved(node, known, path)
    unknown = node.keys() - _COPIED - _DROPPED - _NESTED
    typed = "type" in node or node.get("x-kubernetes-int-or-string")  # which has no other type
    if unknown or not typed:
        message = f"{path}: no structural schema for {sorted(unknown) or 'a field without a type'}"
        raise ValueError(message)

    schema: dict[str, Any] = {}
    if "description" in node:
        schema["description"] = _reflowed(node["description"])
    schema |= {key: node[key] for key in _ordered(node)}
    # Null, an empty text and an empty list mean absent: only what says something is a default.
    if defaults and node.get("default") not in (None, "", []):
        schema["default"] = node["default"]
    if "properties" in node:
        schema["properties"] = {
            name: _structural(child, known, f"{path}.{name}", defaults=defaults)
            for name, child in node["properties"].items()
        }
    if "items" in node:
        schema["items"] = _structural(node["items"], known, f"{path}[]", defaults=defaults)
    return schema


def _resolved(node: Mapping[str, Any], known: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Put in place what the node refers to; what stands beside the reference wins. `X or null` becomes X."""
    flat = dict(node)
    while "$ref" in flat or "anyOf" in flat:
        if "$ref" in flat:
            target = known[flat.pop("$ref").removeprefix("#/$defs/")]
        else:
            options = [option for option in flat.pop("anyOf") if option != {"type": "null"}]
            if len(options) != 1:
                message = f"{path}: a union of {len(options)} types has no structural schema"
                raise ValueError(message)
            (target,) = options
        flat = {**target, **flat}
    return flat


def _ordered(node: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keywords in a fixed order, so that the file changes only where the models do."""
    if "type" in node:
        yield "type"
    yield from sorted(key for key in node if key in _COPIED and key != "type")


def _reflowed(text: str) -> str:
    """Join the lines of each paragraph: the line breaks of the source mean nothing to a reader."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text.strip()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print, write or check the CustomResourceDefinition. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m accelerator_rollout.api.crd", description=main.__doc__)
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--write", action="store_true", help=f"renew crds/{COMMITTED.name}")
    action.add_argument("--check", action="store_true", help="fail if that file is not what the models say")
    options = parser.parse_args(arguments)
    if options.write:
        COMMITTED.write_text(render(), encoding="utf-8")
    elif options.check:
        if not COMMITTED.is_file() or COMMITTED.read_text(encoding="utf-8") != render():
            sys.stderr.write(
                f"crds/{COMMITTED.name} is not what the models say: "
                "run `python -m accelerator_rollout.api.crd --write` and commit the file.\n"
            )
            return 1
    else:
        sys.stdout.write(render())
    return 0


if __name__ == "__main__":
    sys.exit(main())
