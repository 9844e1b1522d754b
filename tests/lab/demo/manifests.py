"""The manifests that the demo applies: those of deploy/examples, for a namespace, with and without us."""

from enum import StrEnum
from pathlib import Path
from typing import Final

import yaml

from accelerator_rollout.names import GATE_LABEL
from lab.client import Object

EXAMPLES: Final = Path(__file__).parents[3] / "deploy" / "examples"
NAME: Final = "llm-inference-worker"
REPLICAS: Final = 4
IMAGE: Final = "vllm/vllm-openai"
OLD: Final = "v0.6.0"
NEW: Final = "v0.6.1"
STRANGER: Final = "batch-job"


class Way(StrEnum):
    """Who rolls the workload."""

    PLAIN = "plain Deployment"
    OURS = "AcceleratorRollout"


def device_class() -> Object:
    """The class of devices that all claims ask for."""
    (body,) = _read("llm-inference-worker/devices.yaml")
    return body


def good(way: Way, *, patience: int | None = None) -> list[Object]:
    """The guideline's manifest; the plain one without our gate, which nobody would open.

    `patience`, in seconds, shortens the time after which the Deployment itself says that it does not get on.
    """
    objects = _read("llm-inference-worker/workload.yaml")
    deployment = _deployment(objects)
    if way is Way.PLAIN:
        del deployment["spec"]["template"]["metadata"]["labels"][GATE_LABEL]
    return _with_rollout(objects, way, patience)


def bad(way: Way, *, patience: int | None = None) -> list[Object]:
    """The guideline's anti-pattern, to the letter, either way."""
    return _with_rollout(_read("anti-pattern/workload.yaml"), way, patience)


def stranger() -> list[Object]:
    """A pod of another team that wants a device of the same class."""
    claim = next(body for body in _read("anti-pattern/workload.yaml") if "Claim" in body["kind"])
    claim["metadata"]["name"] = STRANGER
    pod: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": STRANGER},
        "spec": {
            "terminationGracePeriodSeconds": 30,
            "containers": [
                {"name": "job", "image": "batch:v1", "resources": {"claims": [{"name": "accelerator"}]}}
            ],
            "resourceClaims": [{"name": "accelerator", "resourceClaimTemplateName": STRANGER}],
        },
    }
    return [claim, pod]


def image(tag: str) -> Object:
    """The patch (strategic merge) by which `kubectl set image` changes the pod template."""
    return {"spec": {"template": {"spec": {"containers": [{"name": "vllm", "image": f"{IMAGE}:{tag}"}]}}}}


def _with_rollout(objects: list[Object], way: Way, patience: int | None) -> list[Object]:
    if patience is not None:
        _deployment(objects)["spec"]["progressDeadlineSeconds"] = patience
    return objects if way is Way.PLAIN else [*objects, *_read("llm-inference-worker/rollout.yaml")]


def _deployment(objects: list[Object]) -> Object:
    return next(body for body in objects if body["kind"] == "Deployment")


def _read(file: str) -> list[Object]:
    return [body for body in yaml.safe_load_all((EXAMPLES / file).read_text()) if body]
