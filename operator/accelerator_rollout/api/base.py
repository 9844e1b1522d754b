"""What all models of our kind share: camelCase names, RFC 3339 times of one second, bounded strings.

Each bound stands in the CustomResourceDefinition too, so the API server accepts every status that these
models accept: a status write that is refused would leave a restarted operator blind.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, Final, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    Strict,
    model_serializer,
    model_validator,
)

# Words that Kubernetes writes in capitals inside a field name: podUID, bootID. A leading one stays small.
_INITIALISMS: Final = {"uid": "UID", "id": "ID"}

MAX_MESSAGE: Final = 1024  # characters of a message in `replacements`; conditions allow more


def camel_case(name: str) -> str:
    """Return the field's name as Kubernetes spells it."""
    first, *rest = name.split("_")
    return first + "".join(_INITIALISMS.get(word, word.capitalize()) for word in rest)


def shorten(text: str, limit: int) -> str:
    """Return the text, with an ellipsis in place of what exceeds `limit` characters."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def _read_time(value: object) -> datetime:
    """Accept what the API sends (RFC 3339) and what our clock gives; cut to one second, as the API does."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            message = f"{value!r} is not an RFC 3339 time such as 2026-01-31T12:00:00Z"
            raise ValueError(message) from None
    if not isinstance(value, datetime) or value.tzinfo is None:
        message = f"{value!r} is not a time with a time zone, such as 2026-01-31T12:00:00Z"
        raise ValueError(message)
    return value.astimezone(UTC).replace(microsecond=0)


def _write_time(value: datetime) -> str:
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _cut_message(value: object) -> object:
    # A message carries words of others (a driver's error, an image's name): cut rather than refused.
    return shorten(value, MAX_MESSAGE) if isinstance(value, str) else value


Time = Annotated[datetime, BeforeValidator(_read_time), PlainSerializer(_write_time, when_used="json")]
"""An aware UTC datetime without fraction, as `metav1.Time` is stored. Never order events by it."""

Count = Annotated[int, Strict(), Field(ge=0, json_schema_extra={"format": "int32"})]
Generation = Annotated[int, Strict(), Field(ge=0, json_schema_extra={"format": "int64"})]
Flag = Annotated[bool, Strict()]
ObjectName = Annotated[str, Field(max_length=253)]
Uid = Annotated[str, Field(max_length=128)]
Reason = Annotated[str, Field(max_length=128)]
Message = Annotated[str, BeforeValidator(_cut_message), Field(max_length=MAX_MESSAGE)]


_SAYING: Final[tuple[object, ...]] = (0, False, {})  # values that say something although they are empty


@cache
def _required(part: type[BaseModel]) -> frozenset[str]:
    """Return the names, and the names as written, of the fields that are always written."""
    fields = {name: field for name, field in part.model_fields.items() if field.is_required()}
    return frozenset(fields) | {field.alias or name for name, field in fields.items()}


class WholePart(BaseModel):
    """A part of our object: immutable, equal by value, written in camelCase. All its fields are always there."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=camel_case,
        populate_by_name=True,
        use_attribute_docstrings=True,
        validate_default=True,
    )

    @classmethod
    def from_raw(cls, raw: object) -> Self:
        """Read what the API server sent. Raises pydantic's ValidationError."""
        return cls.model_validate(raw, by_alias=True, by_name=False)

    def to_raw(self) -> dict[str, Any]:
        """Return the JSON value to send to the API server."""
        return self.model_dump(mode="json", by_alias=True)


class Part(WholePart):
    """A part some of whose fields may be absent."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, value: object) -> object:
        """Read null as if the field were not there, as the API server does."""
        if isinstance(value, Mapping):
            return {key: item for key, item in value.items() if item is not None}
        return value

    @model_serializer(mode="wrap")
    def _leave_out_the_empty(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out optional fields that say nothing; absent and empty mean the same when read back."""
        required = _required(type(self))
        written: dict[str, Any] = handler(self)
        return {key: item for key, item in written.items() if item or key in required or item in _SAYING}
