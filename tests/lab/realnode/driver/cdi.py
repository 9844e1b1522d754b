"""What a container gets of a prepared device, by CDI: a variable that names it, and its file.

The file is an ordinary one, bound from the host into the container. That is enough for an exclusive lock, and a lock is
what shows two processes on one device.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

FOLDER: Final = "/accelerators"
"""In the container: the files of its devices lie in here, in a folder for each driver."""
VARIABLES: Final = "ACCELERATOR_"
"""How the variables begin; the value is the path of the device's file."""

_VERSION: Final = "0.6.0"
_CLASS: Final = "claim"


def device_id(driver: str, claim_uid: str, device: str) -> str:
    """The name by which the container runtime finds a claim's device. No other claim's device has it."""
    return f"{_kind(driver)}={claim_uid}-{device}"


def path_in_container(driver: str, device: str) -> str:
    """Where the device's file is for who uses it."""
    return f"{FOLDER}/{driver}/{device}"


def spec(driver: str, claim_uid: str, files: Mapping[str, Path]) -> dict[str, Any]:
    """The CDI specification of a claim; `files` on the host by device."""
    return {
        "cdiVersion": _VERSION,
        "kind": _kind(driver),
        "devices": [
            {
                "name": f"{claim_uid}-{device}",
                "containerEdits": {
                    "env": [f"{_variable(device)}={path_in_container(driver, device)}"],
                    "mounts": [
                        {
                            "hostPath": str(file),
                            "containerPath": path_in_container(driver, device),
                            "options": ["rw", "nosuid", "nodev", "bind"],
                        }
                    ],
                },
            }
            for device, file in files.items()
        ],
    }


def spec_path(folder: Path, driver: str, claim_uid: str) -> Path:
    """The file of a claim's specification."""
    return folder / f"{driver}-{_CLASS}_{claim_uid}.json"


def write(folder: Path, driver: str, claim_uid: str, files: Mapping[str, Path]) -> None:
    """Write it, so that a runtime which looks just now sees the whole file or none."""
    path = spec_path(folder, driver, claim_uid)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(spec(driver, claim_uid, files)))
    partial.rename(path)


def remove(folder: Path, driver: str, claim_uid: str) -> None:
    """Take it away; nothing to do if it is gone."""
    spec_path(folder, driver, claim_uid).unlink(missing_ok=True)


def _kind(driver: str) -> str:
    return f"{driver}/{_CLASS}"


def _variable(device: str) -> str:
    return VARIABLES + re.sub(r"\W", "_", device).upper()
