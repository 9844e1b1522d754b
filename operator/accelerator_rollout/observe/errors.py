"""What can go wrong between us and the API server while we observe.

ObserveError
├── NoClusterError     no credentials, or nobody answers: nothing can be observed
├── NotServedError     the cluster does not serve a kind that we cannot do without
├── NotAllowedError    the API server refuses us a list or a watch
├── NotWatchedError    events of a kind do not reach us
├── ProjectionError    an object whose meaning is not clear to us
└── ReadError          one read failed; the next may succeed
    └── NotFoundError  what was asked for does not exist
"""


class ObserveError(Exception):
    """Observing failed; the message is one sentence for people."""


class NoClusterError(ObserveError):
    """No credentials, or nobody answers."""


class NotServedError(ObserveError):
    """The cluster does not serve a kind that we cannot do without."""


class NotAllowedError(ObserveError):
    """The API server refuses us a list or a watch."""


class NotWatchedError(ObserveError):
    """Events of a kind do not reach us."""


class ProjectionError(ObserveError):
    """An object whose meaning is not clear to us."""

    def __init__(self, kind: str, namespace: str, name: str, uid: str, why: str) -> None:
        where = f"{namespace}/{name}" if namespace else name
        super().__init__(f"{kind} {where} cannot be read: {why}")
        self.kind, self.namespace, self.name, self.uid, self.why = kind, namespace, name, uid, why


class ReadError(ObserveError):
    """One read failed; the next may succeed."""


class NotFoundError(ReadError):
    """What was asked for does not exist."""
