"""An instant query to a Prometheus, for checks: numbers in, or one sentence on why there are none."""

import json
from typing import Any, Final

import aiohttp

_TIMEOUT: Final = 5.0  # seconds for the whole of a query
_MOST_BYTES: Final = 1024 * 1024
_MOST_TOLD: Final = 200  # characters of what the server said


class QueryError(Exception):
    """Why a query brought no numbers."""


async def query(address: str, expression: str, timeout_seconds: float = _TIMEOUT) -> list[float]:
    """Return the values of an instant query. Raises QueryError."""
    url = f"{address.rstrip('/')}/api/v1/query"
    timeout = aiohttp.ClientTimeout(total=timeout_seconds)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            # The address is a user's word: it is followed nowhere else, and what it answers is not passed on whole.
            session.post(url, data={"query": expression}, allow_redirects=False) as response,
        ):
            said = await response.content.read(_MOST_BYTES)
            status = response.status
    except TimeoutError as error:
        raise QueryError(f"{address} did not answer within {timeout_seconds:g} s") from error
    except (aiohttp.ClientError, ValueError, OSError) as error:
        raise QueryError(f"{address} cannot be asked ({type(error).__name__})") from error
    return _values(_parsed(address, status, said))


def _parsed(address: str, status: int, said: bytes) -> Any:
    try:
        found = json.loads(said)
        if found["status"] == "success":
            return found["data"]
        raise QueryError(f"{address} refuses the query: {str(found.get('error'))[:_MOST_TOLD]}")
    except (ValueError, KeyError, TypeError) as error:
        raise QueryError(f"{address} does not answer as a Prometheus does (HTTP {status})") from error


def _values(data: Any) -> list[float]:
    kind, result = data.get("resultType"), data.get("result")
    if kind == "scalar":
        return [float(result[1])]
    if kind == "vector":
        return [float(sample["value"][1]) for sample in result]
    raise QueryError(f"the query brings a {kind}, not an instant vector or a number")
