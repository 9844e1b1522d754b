"""What kstatus makes of objects: the library of sigs.k8s.io/cli-utils itself, as a small program that is built once."""

import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from lab.toolchain import TOOLS, Program, Recipe, Report, ensure, module_version, report_to_stderr

_FOLDER: Final = TOOLS / "kstatus"


def recipe() -> Recipe:
    """How to build it."""
    version = module_version(_FOLDER, "sigs.k8s.io/cli-utils")
    return Recipe(f"kstatus-{version}", _FOLDER, (Program("kstatus", "."),), link_flags="-s -w")


def ensure_kstatus(report: Report | None = None) -> Path:
    """The program, built first if this machine has not built this version yet (15 seconds from empty caches)."""
    return ensure(recipe(), report or report_to_stderr)["kstatus"]


def computed(program: Path, objects: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return status and message of each object."""
    told = "".join(json.dumps(one) + "\n" for one in objects)
    done = subprocess.run([str(program)], input=told.encode(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    return [(answer["status"], answer["message"]) for answer in answers]
