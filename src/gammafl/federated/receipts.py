"""What the server remembers of its clients' uploads, so that none is counted twice and a lost one is told from one
that arrived.

A client numbers its uploads. It calls itself by a name that outlives restarts, and by an incarnation: a random word
that it keeps beside its residual, so that a client that lost its disk is told from one that did not.
"""

import zlib
from dataclasses import dataclass, field
from typing import NamedTuple


class Sender(NamedTuple):
    """Who made an upload."""

    name: str
    incarnation: str


class Receipt(NamedTuple):
    """The number of the last upload that was accepted of `incarnation`, 0 for none, and its CRC-32."""

    incarnation: str
    accepted: int = 0
    checksum: int = 0


@dataclass
class Receipts:
    """By address, which may change with a restart, and by sender, which does not."""

    _senders: dict[int, Sender] = field(default_factory=dict)
    _last: dict[Sender, tuple[int, int]] = field(default_factory=dict)
    _incarnations: dict[str, str] = field(default_factory=dict)

    def receipt(self, address: int) -> Receipt | None:
        """What the next broadcast says to `address`; None if nobody there has answered yet."""
        sender = self._senders.get(address)
        return None if sender is None else Receipt(sender.incarnation, *self._last.get(sender, (0, 0)))

    def last(self, sender: Sender) -> int:
        """The number of the last accepted upload of `sender`, 0 for none."""
        return self._last.get(sender, (0, 0))[0]

    def is_known(self, sender: Sender) -> bool:
        """Whether this is the incarnation that answered last under its name."""
        return self._incarnations.get(sender.name) == sender.incarnation

    def met(self, address: int, sender: Sender) -> str | None:
        """`sender` answered from `address`; a warning if it is a client that lost what it had stored."""
        before = self._incarnations.get(sender.name, sender.incarnation)
        self._senders[address] = sender
        self._incarnations[sender.name] = sender.incarnation
        if sender.incarnation == before:
            return None
        return f"client {sender.name} lost its stored state and starts clean: what its residual held is gone"

    def refusal(self, sender: Sender, number: int) -> str | None:
        """Why upload `number` must not be counted; None if it may."""
        last = self.last(sender)
        return f"upload {number} of client {sender.name} came after its upload {last}" if number <= last else None

    def accept(self, sender: Sender, number: int, payload: bytes = b"") -> None:
        self._last[sender] = number, zlib.crc32(payload)
