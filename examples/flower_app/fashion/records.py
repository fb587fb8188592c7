"""Bytes, accuracy and seconds of each round, as lines of JSON: the same with and without compression."""

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid


class Records:
    """Writes rounds.jsonl and gammafl's ledger.jsonl into `directory`; nothing if it is empty."""

    def __init__(self, directory: str) -> None:
        self.directory = Path(directory) if directory else None
        if self.directory is not None:
            self.directory.mkdir(parents=True, exist_ok=True)
        self.ledger = self.directory and self.directory / "ledger.jsonl"
        self.began = time.perf_counter()
        self._apart = 0.0

    def write(self, **facts: Any) -> None:
        """Writes a line, with the seconds since the beginning, and the seconds of strategy and gammafl."""
        if self.directory is not None:
            seconds = time.perf_counter() - self.began
            facts |= {"seconds": seconds, "server_seconds": seconds - self._apart}
            with (self.directory / "rounds.jsonl").open("a") as file:
                file.write(json.dumps(facts) + "\n")

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Time inside the block does not count as the strategy's time."""
        began = time.perf_counter()
        yield
        self._apart += time.perf_counter() - began

    def counting(self, grid: Grid, poll_seconds: float) -> Grid:
        """`grid`, which also writes down the bytes of all arrays. For `poll_seconds`, see `polling`."""
        send_and_receive = polling(grid, poll_seconds) if poll_seconds else grid.send_and_receive

        def counted(messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
            messages = list(messages)
            if not messages:
                return []
            down = {str(message.metadata.dst_node_id): array_bytes(message) for message in messages}
            with self.apart():
                replies = list(send_and_receive(messages, timeout=timeout))
            arrived = [reply for reply in replies if reply.has_content() and reply.content.array_records]
            if not any(down.values()) and not arrived:  # the end of a training
                return replies
            up = {str(reply.metadata.src_node_id): array_bytes(reply) for reply in arrived}
            self.write(
                uploads=len(arrived), uplink_bytes=sum(up.values()), downlink_bytes=sum(down.values()),
                up=up, down=down, compress_seconds=sum(map(compress_seconds, arrived)) / max(len(arrived), 1),
            )  # fmt: skip
            return replies

        grid.send_and_receive = counted  # type: ignore[method-assign]
        return grid


def polling(grid: Grid, seconds: float) -> Any:
    """`send_and_receive` that checks for replies every `seconds` seconds; Flower's own checks every 3."""

    def send_and_receive(messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        waiting, replies = set(grid.push_messages(messages)), list[Message]()
        deadline = time.monotonic() + (float("inf") if timeout is None else timeout)
        while waiting and time.monotonic() < deadline:
            time.sleep(seconds)
            new = list(grid.pull_messages(waiting))
            waiting -= {reply.metadata.reply_to_message_id for reply in new}
            replies += new
        return replies

    return send_and_receive


def array_bytes(message: Message) -> int:
    return sum(len(array.data) for record in message.content.array_records.values() for array in record.values())


def compress_seconds(reply: Message) -> float:
    """The seconds for compression that the client reports (`switch.py`)."""
    said = [record.get("compress_seconds", 0.0) for record in reply.content.metric_records.values()]
    return float(sum(said))
