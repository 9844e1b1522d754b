"""Whether claims can be held here: looks now and then at the cluster's version and at our own rights."""

import asyncio
import logging
from typing import Final, Protocol

from accelerator_rollout.act.rights import HOLDS, Right
from accelerator_rollout.decide.snapshot import HoldAbility
from accelerator_rollout.errors import ActError

_log = logging.getLogger(__name__)

_PERIOD: Final = 60.0  # seconds
_SINCE: Final = (1, 36)  # before, the claim controller returns an error on entries that are not a pod's


class Asking(Protocol):
    """Who asks the API server."""

    async def may(self, right: Right, namespace: str) -> bool:
        """Whether we have the right in the namespace ("" for all). Raises ActError."""
        ...

    async def version(self) -> tuple[int, int]:
        """Return major and minor of the cluster's version. Raises ActError."""
        ...


class Holding:
    """`ability` is what was found last."""

    def __init__(self, client: Asking) -> None:
        self._client = client
        self.ability = HoldAbility.NOT_PERMITTED

    async def look(self) -> None:
        """Find out once. Raises ActError."""
        if await self._client.version() < _SINCE:
            found = HoldAbility.NOT_SUPPORTED
        elif all([await self._client.may(right, "") for right in HOLDS]):
            found = HoldAbility.POSSIBLE
        else:
            found = HoldAbility.NOT_PERMITTED
        if found is not self.ability:
            _log.info("holding claims: %s", found)
        self.ability = found

    async def run(self) -> None:
        """Look for ever; what cannot be found out stays as it was."""
        while True:
            await asyncio.sleep(_PERIOD)
            try:
                await self.look()
            except ActError as error:
                _log.warning("whether claims can be held could not be found out: %s", error)
