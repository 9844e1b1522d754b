"""What must hold for the repository itself."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def _tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def _name(requirement: str) -> str:
    return re.split(r"[\s<>=!~\[;]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def test_the_source_root_holds_no_module() -> None:
    """A module there would shadow the standard library's `operator` for everybody who has the root on the path."""
    assert [path.name for path in (ROOT / "operator").glob("*.py")] == []


def test_constraints_pin_what_is_asked_for_exactly() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    pinned = {name.lower().replace("_", "-") for name in pins}
    asked = [*PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"]["dev"]]
    assert {_name(one) for one in asked} <= pinned


def test_no_file_names_a_registry_or_a_path_of_some_machine() -> None:
    hosts = [
        "pypi" + ".org",
        "files.python" + "hosted",
        "proxy.golang" + ".org",
        "registry.npm" + "js",
        "/wo" + "rk/",
    ]
    found = []
    for path in _tracked():
        if path.suffix in {".png", ".svg"}:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        found += [f"{path.relative_to(ROOT)}: {host}" for host in hosts if host in text]
    assert not found


def test_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^\.PHONY: (\S+)$", makefile, flags=re.MULTILINE))
    shown = subprocess.run(["make", "help"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert targets
    assert all(re.search(rf"^\s*{target}\b", shown, flags=re.MULTILINE) for target in targets)


def test_the_readme_names_only_targets_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8") + (ROOT / "CONTRIBUTING.md").read_text(
        encoding="utf-8"
    )
    for target in re.findall(r"\bmake ([a-z][a-z-]*)", readme):
        if target != "and":
            assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_links_of_the_documents_lead_somewhere() -> None:
    pages = [path for path in _tracked() if path.suffix == ".md"]
    links = [(page, link) for page in pages for link in LINK.findall(page.read_text(encoding="utf-8"))]
    broken = [
        f"{page.relative_to(ROOT)}: {link}"
        for page, link in links
        if not link.startswith("http") and not (page.parent / link).exists()
    ]
    assert not broken


def test_import_contracts_hold() -> None:
    lint = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([lint], cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.timeout(180)
def test_the_wheel_holds_the_package_and_nothing_else(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "accelerator_rollout/py.typed" in names
    assert "accelerator_rollout/decide/plan.py" in names
    assert not [n for n in names if not n.startswith(("accelerator_rollout/", "accelerator_rollout-"))]
