"""Kubernetes' quantities as exact numbers, each text parsed once: ten thousand devices name few different amounts."""

from decimal import Decimal
from functools import lru_cache

from kubernetes.utils.quantity import parse_quantity


@lru_cache(maxsize=4096)
def quantity(text: str) -> Decimal:
    """Return the amount that a quantity (e.g. 80Gi, 500m) stands for. Raises ValueError."""
    number: Decimal = parse_quantity(text)
    return number
