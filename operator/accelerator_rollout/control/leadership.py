"""Whether we may write at all. Every write asks here right before it is sent."""

from typing import Protocol


class Leadership(Protocol):
    """Who may act. An implementation answers from its own clock and never blocks."""

    def allows(self) -> bool:
        """Whether a write may be sent now."""
        ...


class AlwaysLeader:
    """For a single operator: its Deployment has one replica and strategy Recreate."""

    def allows(self) -> bool:
        """Return true."""
        return True
