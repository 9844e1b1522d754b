"""What can go wrong between us and the API server while we observe.

ObserveError
├── NoClusterError     no credentials, or nobody answers: nothing can be observed
├── NotServedError     the cluster does not serve a kind that we cannot do without
├── NotAllowedError    the API server refuses us a list or a watch
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


class ReadError(ObserveError):
    """One read failed; the next may succeed."""


class NotFoundError(ReadError):
    """What was asked for does not exist."""
