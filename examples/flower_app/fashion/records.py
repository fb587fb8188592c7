"""What each round sent and reached, as lines of JSON: the same measurement with and without compression."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid


class Records:
    """In `directory`: rounds.jsonl, and gammafl's ledger.jsonl; nowhere if it is empty."""

    def __init__(self, directory: str) -> None:
        self.directory = Path(directory) if directory else None
        if self.directory is not None:
            self.directory.mkdir(parents=True, exist_ok=True)
        self.ledger = self.directory and self.directory / "ledger.jsonl"

    def write(self, **facts: Any) -> None:
        if self.directory is not None:
            with (self.directory / "rounds.jsonl").open("a") as file:
                file.write(json.dumps(facts) + "\n")

    def counting(self, grid: Grid) -> Grid:
        """`grid`, with the bytes of the arrays that pass written down."""
        send_and_receive = grid.send_and_receive

        def counted(messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
            messages = list(messages)
            if not messages:
                return []
            down = sum(map(array_bytes, messages))
            replies = list(send_and_receive(messages, timeout=timeout))
            arrived = [reply for reply in replies if reply.has_content() and reply.content.array_records]
            if not down and not arrived:  # the end of a training
                return replies
            self.write(uploads=len(arrived), uplink_bytes=sum(map(array_bytes, arrived)), downlink_bytes=down)
            return replies

        grid.send_and_receive = counted  # type: ignore[method-assign]
        return grid


def array_bytes(message: Message) -> int:
    return sum(len(array.data) for record in message.content.array_records.values() for array in record.values())
