"""The record "gammafl" in the messages of server and clients: all they tell each other besides models and updates."""

import json
from collections.abc import Collection, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gammafl.core.errors import InputError
from gammafl.federated import exchange
from gammafl.federated.downlink import Delivery
from gammafl.files.reading import Count

KEY = "gammafl"
STYPE = "gammafl.message"
"""The serialisation of an array whose bytes are a message of docs/wire-format.md."""

UPDATE, CHANGES, BROADCAST = "update", "changes", "broadcast-"
"""Names of such arrays. UPDATE: a client's compressed update. CHANGES: the model's values that changed since the
client's version. BROADCAST and a number: the compressed differences since then, one per version, to be added up."""

PROTOCOL = 2


class Terms(BaseModel):
    """A record that is checked when it is read. Unset fields are not sent."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")
    sender: ClassVar[str]

    protocol: int = PROTOCOL

    def write(self, content: RecordDict) -> None:
        content[KEY] = ConfigRecord(self.model_dump(exclude_none=True))

    @classmethod
    def read(cls, content: RecordDict) -> Self | None:
        """The record in a message, checked; None if the message has none."""
        record = content.config_records.get(KEY)
        if record is None:
            return None
        if record.get("protocol") != PROTOCOL:
            raise InputError(
                f"the {cls.sender} uses protocol {record.get('protocol')!r} of gammafl, this side uses {PROTOCOL}:"
                " install the same version on both"
            )
        try:
            return cls.model_validate(dict(record))
        except ValidationError as error:
            found = "; ".join(f"{part['loc'][0] if part['loc'] else ''}: {part['msg']}" for part in error.errors())
            raise InputError(f"the {cls.sender}'s record is malformed ({found})") from None


class Offer(Terms, exchange.Offer):
    """The server's offer, with facts about the model in the same message."""

    sender = "server"

    arrays: str
    """The key of the ArrayRecord that is the model. Other ArrayRecords belong to the app."""

    whole: list[str]
    """Patterns of the names of tensors that are sent whole."""

    tied: list[str] | None = None
    """Names of tied tensors in pairs: a tensor, then the one to which it is tied."""

    tensors: str | None = None
    """If a part of the model is sent: the layout of the whole model as JSON (`LayoutFacts`)."""

    replies: Literal["model", "update"] | None = None
    """What the train function returns: the model or its change. Unset: the model, and a change is refused."""

    simulated: bool = False
    """Whether all clients are simulated on the server's machine, so that their states are temporary."""

    resumes: bool = False
    """Whether the server may ask for this round again after a restart. Then the client stores its reply."""

    version: Count = 0
    """The version of the model in this message."""

    base: Count | None = None
    """The version that the message changes. Unset: the whole model is sent."""

    stores: bool = False
    """Whether the client stores the model, since later messages hold only changes of it."""


class Holding(Terms):
    """A client's answer to an evaluation: which version of the model it has stored, if the server asked it to."""

    sender = "client"

    holds: Count | None = None
    wants_full: bool = False


class Answer(Holding, exchange.Answer):
    """A client's answer to a round of training: who it is, and which upload this is."""

    returned: Annotated[str, Field(pattern=r"^[0-9a-f]{1,65536}$")] | None = None
    """If the reply holds a part of the tensors: one bit per name of the model, in order, in hexadecimal."""


class Notice(Terms):
    """The server's record without an offer: it does not compress, or the training is over."""

    sender = "server"

    notice: Literal["off", "end"]
    training: exchange.Word | None = None
    simulated: bool = False


def notice_in(content: RecordDict) -> Notice | None:
    """The notice in a message; None if it has none."""
    record = content.config_records.get(KEY)
    return Notice.read(content) if record is not None and "notice" in record else None


def to_mask(names: Collection[str], of: Sequence[str]) -> str:
    """One bit for each name of `of`, set if it is one of `names`, in hexadecimal.

    >>> to_mask({"b"}, ["a", "b", "c"]), from_mask("2", ["a", "b", "c"])
    ('2', ['b'])
    """
    return f"{sum(1 << i for i, name in enumerate(of) if name in names):x}"


def from_mask(mask: str, of: Sequence[str]) -> list[str]:
    """The names of `of` whose bit is set in `mask`."""
    bits = int(mask, 16)
    if bits >> len(of):
        raise InputError(f"the client's answer names more tensors than the model's {len(of)}")
    return [name for i, name in enumerate(of) if bits >> i & 1]


def difference(ours: str, theirs: str) -> str:
    """The differences between two descriptions of a method, in words."""
    mine, other = _flat(json.loads(ours)), _flat(json.loads(theirs))
    names = [name for name in {**mine, **other} if mine.get(name) != other.get(name)]
    return ", ".join(f"{name} is {mine.get(name)!r} here and {other.get(name)!r} there" for name in names[:3])


def _flat(table: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(table, dict):
        return {prefix: table}
    return {k: v for name, part in table.items() for k, v in _flat(part, f"{prefix}.{name}".lstrip(".")).items()}


def message_record(name: str, payload: bytes) -> ArrayRecord:
    """A message of docs/wire-format.md in a record of Flower's."""
    return ArrayRecord({name: Array("uint8", (len(payload),), STYPE, payload)})


def from_delivery(delivery: Delivery) -> ArrayRecord:
    """What turns a client's older version of the model into the newest, in a record of Flower's."""
    names = [CHANGES] if delivery.kind == "changes" else [f"{BROADCAST}{i}" for i in range(len(delivery.payloads))]
    messages = zip(names, delivery.payloads, strict=True)
    return ArrayRecord({name: Array("uint8", (len(data),), STYPE, data) for name, data in messages})


def to_delivery(record: ArrayRecord, base: int, version: int) -> Delivery:
    """The delivery in a record that `from_delivery` made."""
    if CHANGES in record:
        return Delivery.of("changes", base, version, [record[CHANGES].data])
    names = [f"{BROADCAST}{i}" for i in range(len(record))]
    if set(names) != set(record):
        raise InputError(f"the server announced changes of the model, but sent {list(record)[:3]}")
    return Delivery.of("broadcasts", base, version, [record[name].data for name in names])


def kind_of(message: Message) -> str:
    """ "train", "evaluate" or "query", for any action of the app."""
    return message.metadata.message_type.split(".")[0]


def message_like(message: Message, content: RecordDict, ttl: float | None = None) -> Message:
    """A message to the same node, of the same type and group, with other content. It is valid for `ttl` seconds."""
    metadata = message.metadata
    seconds = metadata.ttl if ttl is None else min(ttl, metadata.ttl)
    return Message(content, metadata.dst_node_id, metadata.message_type, ttl=seconds, group_id=metadata.group_id)
