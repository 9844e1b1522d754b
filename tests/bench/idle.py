"""What an operator costs that has nothing to do: memory, processor time and requests."""

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

from bench.place import Place
from bench.rollouts import calls, written


@dataclass(frozen=True, slots=True)
class Idle:
    """Of one operator in some idle seconds. Memory is the resident set, in megabytes (10^6 bytes)."""

    megabytes: float
    cpu_seconds: float
    requests: dict[str, float]  # by verb
    writes: float  # Events and the Lease excepted
    renewals: float  # of the Lease


async def idle(place: Place, seconds: float) -> Idle:
    """Watch the operator do nothing for so long."""
    pid = place.operator.pid
    cpu, before, wrote = cpu_seconds(pid), await calls(place), await written(place)
    await asyncio.sleep(seconds)  # it is time itself that is measured
    verbs: dict[str, float] = {}
    for sign, counted in ((-1, before), (1, await calls(place))):
        for verb, _, count in counted:
            verbs[verb] = verbs.get(verb, 0.0) + sign * count
    now = await written(place)
    return Idle(
        megabytes(pid),
        cpu_seconds(pid) - cpu,
        {verb: count for verb, count in verbs.items() if count},
        now.total - wrote.total,
        now.renewals - wrote.renewals,
    )


def megabytes(pid: int) -> float:
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used, its own and the kernel's for it."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
