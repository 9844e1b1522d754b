"""Whether the cluster parks Deployments for us: looks now and then for our policy and its binding."""

import asyncio
from typing import Final, Protocol

_PERIOD: Final = 60.0  # seconds


class Looking(Protocol):
    """Who looks."""

    async def parks(self) -> bool | None:
        """Whether the policy is there; None if that cannot be told."""
        ...


class Parking:
    """`present` is what was seen last. Before the first look it is true: a warning needs a reason."""

    def __init__(self, client: Looking) -> None:
        self._client = client
        self.present = True

    async def run(self) -> None:
        """Look for ever."""
        while True:
            seen = await self._client.parks()
            self.present = self.present if seen is None else seen
            await asyncio.sleep(_PERIOD)
