"""What server and clients tell each other beside the model and the update: a record "gammafl" in their messages."""

import json
from typing import Annotated, Any, ClassVar, Literal, Self

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gammafl.core.errors import InputError
from gammafl.core.layout import Layout
from gammafl.core.moment import Moment
from gammafl.federated.receipts import Receipt, Sender, digest
from gammafl.files.reading import Count

KEY = "gammafl"
STYPE = "gammafl.message"
"""Of an array whose bytes are a message of docs/wire-format.md."""

UPDATE, CHANGES = "update", "changes"
"""Names of such arrays: what a client sends, and what a server sends of a model that the client has an older
version of: its values at the places that have changed."""

PROTOCOL = 2

Word = Annotated[str, Field(max_length=128, pattern=r"^[A-Za-z0-9_.:-]+$")]
AbsentReceipt = Annotated[str, Field(pattern=r"^[0-9a-f]{16} [0-9]{1,19} [0-9]{1,10}$")]


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


class Offer(Terms):
    """The server's: how to compress, at which iteration the round ends, and what it has of this client."""

    sender = "server"

    training: Word
    """A random word for this training: a second one in the same run begins anew."""

    method: str
    whole: list[str]
    dim: Count
    round: Count
    iteration: Count
    gamma: float
    first_gamma: float
    last_gamma: float
    iterations: Count
    scale: float
    """What the method is told of the run: t, γ_t, γ_0, γ_T, T and the scale of its threshold (`Moment`)."""

    incarnation: Word | None = None
    accepted: Count = 0
    checksum: Count = 0
    """The last accepted upload of the incarnation that answered from this node last. No incarnation: nobody has."""

    absent: list[AbsentReceipt] | None = None
    """To a node that nobody has answered from: receipts of clients whose node is gone, as "digest number checksum". A
    client that came back under a new node id finds its own there (`receipt`)."""

    entries: Count | None = None
    norm: float | None = None
    """What an upload may be at the most."""

    version: Count = 0
    """Of the model that comes with this."""

    base: Count | None = None
    """The version that only the changes since are sent of; unset: the whole model is sent."""

    downlink: Literal["full", "changes"] = "full"

    def moment(self, layout: Layout) -> Moment:
        """What the method is told, for a model of this layout."""
        gammas = self.gamma, self.first_gamma, self.last_gamma
        return Moment(self.iteration, *gammas, self.iterations, self.scale, layout)

    def receipt(self, incarnation: str) -> Receipt | None:
        """What the server has of the client of that incarnation; None if it did not say."""
        if self.incarnation == incarnation:
            return Receipt(incarnation, self.accepted, self.checksum)
        for entry in self.absent or ():
            name, accepted, checksum = entry.split()
            if name == digest(incarnation):
                return Receipt(incarnation, int(accepted), int(checksum))
        return None


class Holding(Terms):
    """The client's, to an evaluation: which version of the model it has stored, where only changes are sent."""

    sender = "client"

    holds: Count | None = None
    wants_full: bool = False


class Answer(Holding):
    """The client's, to a round of training: who it is, and which upload this is."""

    name: Word
    incarnation: Word
    round: Count
    number: Count = 0
    """Of the upload; 0 if there is none."""

    again: bool = False
    """An upload that was sent before, since the server could not tell whether it arrived."""

    @property
    def who(self) -> Sender:
        return Sender(self.name, self.incarnation)


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
