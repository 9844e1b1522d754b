"""The CustomResourceDefinition is structural, bounded, documented, and what the models say."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import Field

from accelerator_rollout.api import crd
from accelerator_rollout.api.base import Part
from accelerator_rollout.api.models import RolloutSpec, RolloutStatus
from unit.api.samples import SPEC

VERSION = crd.custom_resource_definition()["spec"]["versions"][0]
ROOT = VERSION["schema"]["openAPIV3Schema"]
Node = dict[str, Any]


def nodes(schema: Node, path: str = "") -> Iterator[tuple[str, Node]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")


OURS = [(path, node) for path, node in nodes(ROOT) if path.startswith((".spec", ".status"))]


def with_type(kind: str, within: str = "") -> list[tuple[str, Node]]:
    found = [(path, node) for path, node in OURS if node.get("type") == kind and path.startswith(within)]
    assert found
    return found


def test_the_committed_file_is_what_the_models_say() -> None:
    assert crd.COMMITTED.read_text(encoding="utf-8") == crd.render(), (
        "run `python -m accelerator_rollout.api.crd --write` and commit the file"
    )
    assert crd.main(["--check"]) == 0


def test_the_check_fails_for_a_file_that_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "crd.yaml"
    monkeypatch.setattr(crd, "COMMITTED", copy)
    assert crd.main(["--check"]) == 1
    assert crd.main(["--write"]) == 0
    assert crd.main(["--check"]) == 0
    copy.write_text(copy.read_text(encoding="utf-8") + " ", encoding="utf-8")
    assert crd.main(["--check"]) == 1
    assert "--write" in capsys.readouterr().err


def test_the_text_reads_back_as_the_value() -> None:
    assert yaml.safe_load(crd.render()) == crd.custom_resource_definition()


def test_every_field_has_a_type_and_a_description() -> None:
    typed = ("type", "x-kubernetes-int-or-string")
    assert [path for path, node in OURS if not any(key in node for key in typed)] == []
    assert [path for path, node in OURS if not path.endswith("[]") and not node.get("description")] == []


def test_every_list_is_bounded_and_says_how_it_merges() -> None:
    for path, node in with_type("array"):
        assert node["maxItems"] > 0, path
        assert node["x-kubernetes-list-type"] in ("atomic", "map"), path
        for key in node.get("x-kubernetes-list-map-keys", ()):
            assert key in node["items"]["required"], path


def test_every_text_is_bounded() -> None:
    for path, node in with_type("string"):
        assert node.keys() & {"maxLength", "enum"} or node.get("format") == "date-time", path


def test_numbers_in_the_spec_have_both_ends() -> None:
    for path, node in with_type("integer", within=".spec"):
        assert {"minimum", "maximum", "format"} <= node.keys(), path


def test_only_the_spec_has_defaults_and_they_are_those_of_the_models() -> None:
    elsewhere = {
        path: node["default"] for path, node in OURS if "default" in node and not path.startswith(".spec")
    }
    assert elsewhere == {".status": {"observedGeneration": 0}}, "nobody has looked at a new object yet"
    defaults = {
        name: node["default"]
        for name, node in ROOT["properties"]["spec"]["properties"].items()
        if "default" in node
    }
    assert SPEC | defaults == RolloutSpec.from_raw(SPEC).to_raw()


def test_every_rule_has_a_message() -> None:
    rules = [(path, rule) for path, node in nodes(ROOT) for rule in node.get("x-kubernetes-validations", ())]
    assert len(rules) == 13
    for path, rule in rules:
        assert rule.keys() >= {"rule", "message"}, path


def test_it_is_found_under_its_short_name_its_category_and_its_workload() -> None:
    spec = crd.custom_resource_definition()["spec"]
    assert (spec["names"]["shortNames"], spec["names"]["categories"], spec["scope"]) == (
        ["arol"],
        ["accelerators"],
        "Namespaced",
    )
    assert VERSION["selectableFields"] == [
        {"jsonPath": ".spec.workloadRef.kind"},
        {"jsonPath": ".spec.workloadRef.name"},
    ]
    assert VERSION["subresources"] == {"status": {}}


def test_printer_columns_show_fields_that_exist() -> None:
    fields = {path for path, _ in nodes(ROOT)}
    paths = [c["jsonPath"].replace("[0]", "[]") for c in VERSION["additionalPrinterColumns"]]
    plain = [path for path in paths if "[?" not in path]
    assert set(plain) - fields == {".metadata.creationTimestamp"}


class Either(Part):
    """A part that no structural schema can say."""

    value: int | str
    """One or the other."""


class Odd(Part):
    """A part with a keyword that the API server does not know."""

    value: int = Field(multiple_of=3, json_schema_extra={"x-unknown": True})
    """A number."""


@pytest.mark.parametrize("model", [Either, Odd])
def test_a_model_that_cannot_be_said_structurally_is_an_error(model: type[Part]) -> None:
    with pytest.raises(ValueError, match=rf"{model.__name__}\.value: "):
        crd.structural_schema(model, defaults=True)


def test_an_optional_field_is_simply_not_required() -> None:
    replacement = crd.structural_schema(RolloutStatus, defaults=False)["properties"]["replacements"]["items"]
    assert replacement["properties"]["proof"]["type"] == "string"
    assert "proof" not in replacement["required"]
