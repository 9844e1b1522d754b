"""One object, again and again: as it is, and at each change."""

import time
from collections.abc import Iterator
from typing import Final

from accelerator_rollout.cli.cluster import Cluster, Raw
from accelerator_rollout.errors import GoneError, UnavailableError

_PATIENCE: Final = 2.0  # seconds between two tries
_SILENCE: Final = (
    15  # seconds that one watch lasts: as often the deadline is looked at, and a missed event made up for
)
_LEAST: Final = 1


def changes(cluster: Cluster, path: str, deadline: float | None) -> Iterator[Raw | None]:
    """Yield the object under `path` as it is, then at each change, and None once it is gone; until `deadline`.

    That is of time.monotonic. An API server that is away for a moment is waited for.
    """
    collection, _, name = path.rpartition("/")
    reached = False
    while (left := _left(deadline)) > 0:
        try:
            raw = cluster.get(path)
            reached = True
            yield raw
            version = raw["metadata"]["resourceVersion"]
            seconds = str(max(_LEAST, min(_SILENCE, int(_left(deadline)))))
            for event in cluster.watch(
                collection,
                fieldSelector=f"metadata.name={name}",
                resourceVersion=version,
                timeoutSeconds=seconds,
            ):
                if event["type"] not in ("ADDED", "MODIFIED", "DELETED"):
                    break  # the API server has forgotten the version: look anew
                yield event["object"] if event["type"] != "DELETED" else None
        except GoneError:
            yield None
        except UnavailableError:
            if not reached:
                raise
            time.sleep(min(_PATIENCE, max(0.0, left)))


def _left(deadline: float | None) -> float:
    return deadline - time.monotonic() if deadline is not None else float("inf")
