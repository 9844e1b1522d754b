"""What the optional roles let us do here: looks now and then at the cluster's version and at our own rights."""

import asyncio
import logging
from typing import Final, Protocol

from accelerator_rollout.act.rights import HOLDS, RESERVATIONS, TEMPLATES, Right
from accelerator_rollout.decide.snapshot import HoldAbility, ReserveAbility
from accelerator_rollout.errors import ActError
from accelerator_rollout.observe.kinds import Kind

_log = logging.getLogger(__name__)

_PERIOD: Final = 60.0  # seconds
_HOLDS_SINCE: Final = (1, 36)  # before, the claim controller returns an error on entries that are not a pod's


class Asking(Protocol):
    """Who asks the API server."""

    async def may(self, right: Right, namespace: str) -> bool:
        """Whether we have the right in the namespace ("" for all). Raises ActError."""
        ...

    async def version(self) -> tuple[int, int]:
        """Return major and minor of the cluster's version. Raises ActError."""
        ...

    def serves(self, kind: Kind) -> bool:
        """Whether the cluster serves the kind, as far as we know."""
        ...


class Abilities:
    """`hold`, `reserve` and `restore` are what was found last."""

    def __init__(self, client: Asking) -> None:
        self._client = client
        self.hold = HoldAbility.NOT_PERMITTED
        self.restore = False  # whether former pod templates may be written
        self._may_reserve = False

    @property
    def reserve(self) -> ReserveAbility:
        """Whether devices can be reserved. What the cluster serves is known a moment after the start, and may change."""
        if not self._client.serves(Kind.TAINT_RULES):
            return ReserveAbility.NOT_SUPPORTED
        return ReserveAbility.POSSIBLE if self._may_reserve else ReserveAbility.NOT_PERMITTED

    async def look(self) -> None:
        """Find out once. Raises ActError."""
        hold, may_reserve = await self._holds(), await self._all(RESERVATIONS)
        restore = await self._all(TEMPLATES)
        if (hold, may_reserve, restore) != (self.hold, self._may_reserve, self.restore):
            reserving, undoing = ("permitted" if may else "not permitted" for may in (may_reserve, restore))
            _log.info("holding claims: %s; reserving devices: %s; undo: %s", hold, reserving, undoing)
        self.hold, self._may_reserve, self.restore = hold, may_reserve, restore

    async def run(self) -> None:
        """Look for ever; what cannot be found out stays as it was."""
        while True:
            await asyncio.sleep(_PERIOD)
            try:
                await self.look()
            except ActError as error:
                _log.warning("what the optional roles allow could not be found out: %s", error)

    async def _holds(self) -> HoldAbility:
        if await self._client.version() < _HOLDS_SINCE:
            return HoldAbility.NOT_SUPPORTED
        return HoldAbility.POSSIBLE if await self._all(HOLDS) else HoldAbility.NOT_PERMITTED

    async def _all(self, rights: tuple[Right, ...]) -> bool:
        return all([await self._client.may(right, "") for right in rights])
