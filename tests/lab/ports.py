"""Free TCP ports on the loopback address."""

import random
import socket
from typing import Final

# Below the range from which the kernel takes ports for outgoing connections: those come and go all the time, and one of
# them could take a port between our choice and its use.
_FIRST: Final = 20000
_LAST: Final = 32000
_CHOICE: Final = random.SystemRandom()  # pytest seeds the common generator: parallel runs would choose alike


def free_ports(count: int) -> list[int]:
    """Different ports that nobody listens on right now. Another process may still be quicker: be ready to retry."""
    found: list[int] = []
    for port in _CHOICE.sample(range(_FIRST, _LAST), 1000):
        if len(found) == count:
            return found
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
    raise RuntimeError(f"found only {len(found)} of {count} free ports between {_FIRST} and {_LAST}")
