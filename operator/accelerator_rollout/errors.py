"""What can go wrong between a decision and the cluster.

OperatorError
├── StartError             the operator cannot begin: one sentence for people, exit code 1
└── ActError               one act failed
    ├── ConflictError      the object is not the one decided on any more: decide anew
    ├── GoneError          the object does not exist any more: decide anew
    ├── RefusedError       the API server turned an eviction down (a PodDisruptionBudget, mostly): say so, try later
    ├── ForbiddenError     we lack a right: say which, try later
    ├── InvalidError       the API server does not accept what we sent: a defect, or a policy of the cluster
    ├── NotLeadingError    somebody else may be acting: nothing was sent
    └── UnavailableError   no answer, or "not now": try later

Errors of reading and watching stand in `observe.errors`.
"""


class OperatorError(Exception):
    """The root; the message is a sentence for people."""


class StartError(OperatorError):
    """The operator cannot begin."""


class ActError(OperatorError):
    """One act failed."""


class ConflictError(ActError):
    """The object is not the one decided on any more."""


class GoneError(ActError):
    """The object does not exist any more."""


class RefusedError(ActError):
    """The API server turned an eviction down."""


class ForbiddenError(ActError):
    """We lack a right."""


class InvalidError(ActError):
    """The API server does not accept what we sent."""


class NotLeadingError(ActError):
    """Somebody else may be acting, so nothing was sent."""


class UnavailableError(ActError):
    """No answer, or "not now". `retry_after` is the server's own wish in seconds, if it has one."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
