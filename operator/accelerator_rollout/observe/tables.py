"""Records of one kind, found by UID, by name, and by whatever else they are asked for."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Generic, Protocol, TypeVar


class Identified(Protocol):
    """What every record has."""

    @property
    def name(self) -> str:
        """Name, unique within a namespace at any one time."""

    @property
    def uid(self) -> str:
        """UID, unique for ever."""

    @property
    def resource_version(self) -> str:
        """Number of the write that made this state; comparable within one kind."""


R = TypeVar("R", bound=Identified)

Keys = Callable[[R], Iterable[Hashable]]


class Index:
    """Sets of UIDs by key. Most sets have one member, and ten thousand real sets would cost two megabytes."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[Hashable, str | set[str]] = {}

    def add(self, key: Hashable, uid: str) -> None:
        """Add `uid` under `key`."""
        held = self._held.get(key)
        if held is None:
            self._held[key] = uid
        elif isinstance(held, set):
            held.add(uid)
        elif held != uid:
            self._held[key] = {held, uid}

    def discard(self, key: Hashable, uid: str) -> None:
        """Take `uid` away from under `key`, if it is there."""
        held = self._held.get(key)
        if isinstance(held, set):
            held.discard(uid)
            if not held:
                del self._held[key]
        elif held == uid:
            del self._held[key]

    def at(self, key: Hashable) -> tuple[str, ...]:
        """Return the UIDs under `key`, in a stable order."""
        held = self._held.get(key)
        if held is None:
            return ()
        return (held,) if isinstance(held, str) else tuple(sorted(held))


class Table(Generic[R]):
    """The newest record of each object of one kind.

    Two objects may share a name for a moment: events of different UIDs arrive in any order, so a recreated object may
    be seen before its predecessor's deletion. Asked by name, the younger one answers.
    """

    __slots__ = ("_by_uid", "_indices", "_names")

    def __init__(self, **indices: Keys[R]) -> None:
        self._by_uid: dict[str, R] = {}
        self._names = Index()
        self._indices: Mapping[str, tuple[Keys[R], Index]] = {n: (k, Index()) for n, k in indices.items()}

    def __len__(self) -> int:
        return len(self._by_uid)

    def __iter__(self) -> Iterator[R]:
        return iter(self._by_uid.values())

    def get(self, uid: str) -> R | None:
        """Return the record of this UID."""
        return self._by_uid.get(uid)

    def named(self, namespace: str, name: str) -> R | None:
        """Return the record of this name; `namespace` is empty for what has none."""
        found = [self._by_uid[uid] for uid in self._names.at((namespace, name))]
        return max(found, key=lambda r: int(r.resource_version), default=None)

    def by(self, index: str, key: Hashable) -> tuple[R, ...]:
        """Return the records under `key` of the index of this name."""
        return tuple(self._by_uid[uid] for uid in self._indices[index][1].at(key))

    def put(self, record: R) -> R | None:
        """Store `record` and return the one it replaces."""
        old = self.drop(record.uid)
        self._by_uid[record.uid] = record
        self._names.add(_full_name(record), record.uid)
        for keys, index in self._indices.values():
            for key in keys(record):
                index.add(key, record.uid)
        return old

    def drop(self, uid: str) -> R | None:
        """Remove and return the record of this UID."""
        old = self._by_uid.pop(uid, None)
        if old is not None:
            self._names.discard(_full_name(old), uid)
            for keys, index in self._indices.values():
                for key in keys(old):
                    index.discard(key, uid)
        return old


def _full_name(record: Identified) -> tuple[str, str]:
    return getattr(record, "namespace", ""), record.name
