"""What the server remembers of its clients' uploads, so that none counts twice and a lost one can be told.

A client numbers its uploads. It calls itself by a name that outlives restarts, such as its partition, and by an
incarnation: a random word that it keeps beside its residual. The incarnation is the sender of an upload, and a secret
between a client and its server. The name is public and proves nothing: whoever uses a name with another incarnation is
another sender, and takes nothing from the first; a client whose state lies under another name is the one it was.
"""

import hashlib
import zlib
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gammafl.files.reading import Count, Facts, checked

Address = int | str
"""Where a client answers from: a node of the network, or a name that the transport vouches for."""


@dataclass(frozen=True)
class Sender:
    """Who made an upload: two with one incarnation are the same, whatever they call themselves."""

    name: str = field(compare=False)
    incarnation: str


class Receipt(NamedTuple):
    """The number of the last upload that was accepted of `incarnation`, 0 for none, and its CRC-32."""

    incarnation: str
    accepted: int = 0
    checksum: int = 0


class Table(Facts):
    """`Receipts.table`, as it is stored: rows of what the attributes of `Receipts` have."""

    at: list[tuple[Address, str, str]]
    last: list[tuple[str, str, Count, Count, Address]]
    owners: list[tuple[str, Address, str]]


def digest(incarnation: str) -> str:
    """Sixteen letters by which a client finds its receipt among others; nobody can guess the incarnation from it."""
    return hashlib.sha256(incarnation.encode()).hexdigest()[:16]


@dataclass
class Receipts:
    """By sender; and by address, the node of the network that a sender answered from."""

    _at: dict[Address, Sender] = field(default_factory=dict)
    _last: dict[Sender, tuple[int, int]] = field(default_factory=dict)
    """The last accepted upload: its number and checksum. The sender that was accepted last is at the end."""

    _homes: dict[Sender, Address] = field(default_factory=dict)
    """The address that the last accepted upload came from."""

    _owners: dict[str, tuple[Address, str]] = field(default_factory=dict)
    """Name → address and incarnation of the client that used it first."""

    def table(self) -> dict[str, Any]:
        """All of it as plain values, for a checkpoint."""
        return {
            "at": [[address, who.name, who.incarnation] for address, who in self._at.items()],
            "last": [[who.name, who.incarnation, *last, self._homes[who]] for who, last in self._last.items()],
            "owners": [[name, *owner] for name, owner in self._owners.items()],
        }

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> "Receipts":
        """The receipts that `table` was made of; a `ValueError` for what is none."""
        facts = checked(Table, {name: [tuple(row) for row in rows] for name, rows in table.items()})
        receipts = cls()
        receipts._at = {address: Sender(*sender) for address, *sender in facts.at}
        for name, incarnation, number, checksum, home in facts.last:
            receipts._last[Sender(name, incarnation)] = number, checksum
            receipts._homes[Sender(name, incarnation)] = home
        receipts._owners = {name: (address, incarnation) for name, address, incarnation in facts.owners}
        return receipts

    @property
    def addresses(self) -> set[Address]:
        """All that anybody has answered from."""
        return set(self._at)

    def receipt(self, address: Address) -> Receipt | None:
        """What the next broadcast says to `address`; None if nobody there has answered yet."""
        sender = self._at.get(address)
        return None if sender is None else Receipt(sender.incarnation, *self._last.get(sender, (0, 0)))

    def absent(self, connected: Container[Address], most: int) -> list[tuple[str, int, int]]:
        """(digest, number, checksum) of senders whose last address is gone, at most so many, the latest first.

        A client that came back under a new address finds itself here.
        """
        gone = [(sender, last) for sender, last in self._last.items() if self._homes[sender] not in connected]
        return [(digest(sender.incarnation), *last) for sender, last in reversed(gone[-most:])]

    def last(self, sender: Sender) -> int:
        """The number of the last accepted upload of `sender`, 0 for none."""
        return self._last.get(sender, (0, 0))[0]

    def home(self, sender: Sender) -> Address | None:
        """The address that the last accepted upload of `sender` came from."""
        return self._homes.get(sender)

    def met(self, address: Address, sender: Sender) -> str | None:
        """`sender` answered from `address`; a warning if its name or its address was another's."""
        before = self._at.get(address)
        self._at[address] = sender
        owner = self._owners.setdefault(sender.name, (address, sender.incarnation))
        if address == owner[0]:
            self._owners[sender.name] = address, sender.incarnation
        if before == sender:
            return None
        label = self.label(address, sender)
        if label == sender.name:
            lost = before is not None and before.name == sender.name
            return (
                f"client {label} lost its stored state and starts clean: what its residual held is gone"
                if lost
                else None
            )
        return (
            f"node {address} calls itself client {sender.name}, as node {owner[0]} does. It counts as client {label}."
            " Do two SuperNodes have one partition-id, or was a client's disk lost?"
        )

    def label(self, address: Address, sender: Sender) -> str:
        """What the ledger calls a sender: its name, or name@address where another client used the name first."""
        owns = sender.incarnation == self._owners.get(sender.name, (address, sender.incarnation))[1]
        return sender.name if owns else f"{sender.name}@{address}"

    def refusal(self, sender: Sender, number: int) -> str | None:
        """Why upload `number` must not be counted; None if it may."""
        last = self.last(sender)
        return f"upload {number} of client {sender.name} came after its upload {last}" if number <= last else None

    def accept(self, address: Address, sender: Sender, number: int, payload: bytes = b"") -> None:
        """Upload `number` of `sender`, from `address`, is in the model."""
        self._last.pop(sender, None)
        self._last[sender] = number, zlib.crc32(payload)
        self._homes[sender] = address
        if self.label(address, sender) == sender.name:
            self._owners[sender.name] = address, sender.incarnation
