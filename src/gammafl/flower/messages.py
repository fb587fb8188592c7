"""What server and clients tell each other beside the model and the update: a record "gammafl" in their messages."""

import json
from typing import Any, ClassVar, Literal, Self

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from pydantic import BaseModel, ConfigDict, ValidationError

from gammafl.core.errors import InputError
from gammafl.federated import exchange
from gammafl.files.reading import Count

KEY = "gammafl"
STYPE = "gammafl.message"
"""Of an array whose bytes are a message of docs/wire-format.md."""

UPDATE, CHANGES = "update", "changes"
"""Names of such arrays: what a client sends, and what a server sends of a model that the client has an older
version of: its values at the places that have changed."""

PROTOCOL = 2


class Terms(BaseModel):
    """A record that is checked when it is read; what is unset is not sent."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")
    sender: ClassVar[str]

    protocol: int = PROTOCOL

    def write(self, content: RecordDict) -> None:
        content[KEY] = ConfigRecord(self.model_dump(exclude_none=True))

    @classmethod
    def read(cls, content: RecordDict) -> Self | None:
        """The terms in a message; None if it has none."""
        record = content.config_records.get(KEY)
        if record is None:
            return None
        if record.get("protocol") != PROTOCOL:
            raise InputError(
                f"the {cls.sender} speaks protocol {record.get('protocol')!r} of gammafl, this side {PROTOCOL}:"
                " install the same version on both"
            )
        try:
            return cls.model_validate(dict(record))
        except ValidationError as error:
            found = "; ".join(f"{part['loc'][0] if part['loc'] else ''}: {part['msg']}" for part in error.errors())
            raise InputError(f"the {cls.sender}'s terms are malformed ({found})") from None


class Offer(Terms, exchange.Offer):
    """The server's offer, and what it says of the model that comes with it."""

    sender = "server"

    whole: list[str]
    """Patterns of the names of tensors that are sent whole."""

    version: Count = 0
    """Of the model that comes with this."""

    base: Count | None = None
    """The version that only the changes since are sent of; unset: the whole model is sent."""

    downlink: Literal["full", "changes"] = "full"


class Holding(Terms):
    """The client's, to an evaluation: which version of the model it has stored, where only changes are sent."""

    sender = "client"

    holds: Count | None = None
    wants_full: bool = False


class Answer(Holding, exchange.Answer):
    """The client's, to a round of training: who it is, and which upload this is."""


def difference(ours: str, theirs: str) -> str:
    """Where two descriptions of a method differ, in words."""
    mine, other = _flat(json.loads(ours)), _flat(json.loads(theirs))
    names = [name for name in {**mine, **other} if mine.get(name) != other.get(name)]
    return ", ".join(f"{name} is {mine.get(name)!r} here and {other.get(name)!r} there" for name in names[:3])


def _flat(table: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(table, dict):
        return {prefix: table}
    return {k: v for name, part in table.items() for k, v in _flat(part, f"{prefix}.{name}".lstrip(".")).items()}


def message_record(name: str, payload: bytes) -> ArrayRecord:
    """A message of docs/wire-format.md, as Flower carries it."""
    return ArrayRecord({name: Array("uint8", (len(payload),), STYPE, payload)})
