"""The server's receipts for its clients' uploads: no upload counts twice, and clients learn which ones are lost.

A client numbers its uploads. It has a name that stays the same over restarts, such as its partition. It also has an
incarnation: a random word that it stores with its residual. The incarnation is a secret between client and server, and
identifies the sender of an upload. The name is public and proves nothing. The same name with another incarnation is
another sender, and has no effect on the first one. The same incarnation under another name is the same sender.
"""

import hashlib
import zlib
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gammafl.files.reading import Count, Facts, checked

Address = int | str
"""The address from which a client answers: a node of the network, or a name that the transport guarantees."""


@dataclass(frozen=True)
class Sender:
    """Who made an upload. Two senders with the same incarnation are equal, even if their names differ."""

    name: str = field(compare=False)
    incarnation: str


class Receipt(NamedTuple):
    """The number of the last accepted upload of `incarnation`, 0 for none, and its CRC-32."""

    incarnation: str
    accepted: int = 0
    checksum: int = 0


class Table(Facts):
    """`Receipts.table` in a file: one row per entry of the attributes of `Receipts`."""

    at: list[tuple[Address, str, str]]
    last: list[tuple[str, str, Count, Count, Address]]
    owners: list[tuple[str, Address, str]]


def digest(incarnation: str) -> str:
    """Sixteen letters with which a client finds its own receipt. They do not reveal the incarnation."""
    return hashlib.sha256(incarnation.encode()).hexdigest()[:16]


@dataclass
class Receipts:
    """Receipts by sender, and by the address from which a sender answered."""

    _at: dict[Address, Sender] = field(default_factory=dict)
    _last: dict[Sender, tuple[int, int]] = field(default_factory=dict)
    """Sender → number and checksum of its last accepted upload. The latest sender is at the end."""

    _homes: dict[Sender, Address] = field(default_factory=dict)
    """Sender → the address of its last accepted upload."""

    _owners: dict[str, tuple[Address, str]] = field(default_factory=dict)
    """Name → address and incarnation of the client that used the name first."""

    def table(self) -> dict[str, Any]:
        """All receipts as plain values, for a checkpoint."""
        return {
            "at": [[address, who.name, who.incarnation] for address, who in self._at.items()],
            "last": [[who.name, who.incarnation, *last, self._homes[who]] for who, last in self._last.items()],
            "owners": [[name, *owner] for name, owner in self._owners.items()],
        }

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> "Receipts":
        """The receipts in `table`; a `ValueError` if it is malformed."""
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
        """All addresses from which a client has answered."""
        return set(self._at)

    def receipt(self, address: Address) -> Receipt | None:
        """The receipt for the next offer to `address`; None if no client has answered from there yet."""
        sender = self._at.get(address)
        return None if sender is None else Receipt(sender.incarnation, *self._last.get(sender, (0, 0)))

    def absent(self, connected: Container[Address], most: int) -> list[tuple[str, int, int]]:
        """(digest, number, checksum) of senders whose last address is not connected, the latest first.

        At most `most` of them. A client that came back under a new address finds its receipt here.
        """
        gone = [(sender, last) for sender, last in self._last.items() if self._homes[sender] not in connected]
        return [(digest(sender.incarnation), *last) for sender, last in reversed(gone[-most:])]

    def last(self, sender: Sender) -> int:
        """The number of the last accepted upload of `sender`, 0 for none."""
        return self._last.get(sender, (0, 0))[0]

    def home(self, sender: Sender) -> Address | None:
        """The address of the last accepted upload of `sender`."""
        return self._homes.get(sender)

    def met(self, address: Address, sender: Sender) -> str | None:
        """Notes that `sender` answered from `address`. Returns a warning if another sender had its name or address."""
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
            return f"client {label} lost its stored state and starts clean: its residual is lost" if lost else None
        return (
            f"node {address} calls itself client {sender.name}, as node {owner[0]} does. It counts as client {label}."
            " Do two SuperNodes have one partition-id, or was a client's disk lost?"
        )

    def label(self, address: Address, sender: Sender) -> str:
        """The sender's name in the ledger: its own, or name@address if another client used the name first."""
        owns = sender.incarnation == self._owners.get(sender.name, (address, sender.incarnation))[1]
        return sender.name if owns else f"{sender.name}@{address}"

    def refusal(self, sender: Sender, number: int) -> str | None:
        """Why upload `number` must not be counted; None if it may."""
        last = self.last(sender)
        return f"upload {number} of client {sender.name} came after its upload {last}" if number <= last else None

    def accept(self, address: Address, sender: Sender, number: int, payload: bytes = b"") -> None:
        """Notes that the model holds upload `number` of `sender` from `address`."""
        self._last.pop(sender, None)
        self._last[sender] = number, zlib.crc32(payload)
        self._homes[sender] = address
        if self.label(address, sender) == sender.name:
            self._owners[sender.name] = address, sender.incarnation
