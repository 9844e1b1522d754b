"""The periods that a kubelet and a claim's spec impose, shortened together for tests."""

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. The defaults are a tenth of the real ones; `real` has those, for clusters that people look at."""

    retry: float = 1.0  # a failed prepare, unprepare or container start is tried again (kubelet: about 10 s)
    crash_backoff: float = 1.0  # doubles with each crash (kubelet: 10 s)
    crash_backoff_limit: float = 30.0  # kubelet: 300 s
    slice_wipe: float = 3.0  # a driver gone this long loses its ResourceSlices (kubelet: 30 s)
    lease: float = 10.0  # not shortened: what judges it, the node lifecycle controller, is real
    grace_scale: float = (
        1.0  # of terminationGracePeriodSeconds and preStop: 0.1 makes a grace of 120 s last 12 s
    )

    @classmethod
    def real(cls) -> Self:
        """The periods of a real kubelet."""
        return cls(retry=10.0, crash_backoff=10.0, crash_backoff_limit=300.0, slice_wipe=30.0)
