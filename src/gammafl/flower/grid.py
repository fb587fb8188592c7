"""A Grid of Flower's around another one, which changes messages and replies. The strategy does not notice it."""

from collections.abc import Callable, Collection, Iterable
from functools import cache
from typing import Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from gammafl.flower.messages import Notice, kind_of, message_like

Reply = tuple[str, Message]
"""The kind of the message that was sent, "train", "evaluate" or "query", and the reply to it. The reply's own kind is
not used: its sender may set it to anything."""


class PassingGrid(Grid):
    """Passes all calls on to `grid`. `write` may change each message, and `read` each reply."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self._pushed: dict[str, str] = {}
        """Id of a message that was pushed → its kind."""

    def write(self, messages: list[Message], timeout: float | None) -> list[Message]:
        return messages

    def read(self, replies: list[Reply]) -> list[Message]:
        return [reply for _, reply in replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        written = self.write(list(messages), timeout)
        if not written:
            return self.read([])
        asked = {message.metadata.dst_node_id: kind_of(message) for message in written}
        replies = list(self.grid.send_and_receive(written, timeout=timeout))
        return self.read([(asked.get(reply.metadata.src_node_id, kind_of(reply)), reply) for reply in replies])

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        written = self.write(list(messages), None)
        ids = list(self.grid.push_messages(written))
        self._pushed |= {id_: kind_of(message) for id_, message in zip(ids, written, strict=False)}
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        replies = list(self.grid.pull_messages(message_ids))
        kinds = [self._pushed.get(reply.metadata.reply_to_message_id, kind_of(reply)) for reply in replies]
        return self.read(list(zip(kinds, replies, strict=True)))

    def get_node_ids(self) -> Iterable[int]:
        return self.grid.get_node_ids()

    def get_nodes(self) -> Iterable[Any]:
        return self.grid.get_nodes()

    def set_run(self, run: Any) -> None:
        self.grid.set_run(run)

    @property
    def run(self) -> Any:
        return self.grid.run

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        return self.grid.create_message(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.grid, name)


class CompressedGrid(PassingGrid):
    """Passes messages through the function `write`, and replies through the function `read`."""

    def __init__(
        self,
        grid: Grid,
        write: Callable[[list[Message], Callable[[], Collection[int]], float | None], list[Message]],
        read: Callable[[list[Reply]], list[Message]],
    ) -> None:
        super().__init__(grid)
        self._write, self._read = write, read

    def write(self, messages: list[Message], timeout: float | None) -> list[Message]:
        return self._write(messages, cache(lambda: frozenset(self.grid.get_node_ids())), timeout)

    def read(self, replies: list[Reply]) -> list[Message]:
        return self._read(replies)


class UncompressedGrid(PassingGrid):
    """Tells clients that nothing is compressed. Those that have the mod then train as without it."""

    def write(self, messages: list[Message], timeout: float | None) -> list[Message]:
        return [self._noticed(message) for message in messages]

    def _noticed(self, message: Message) -> Message:
        content = RecordDict(dict(message.content))
        Notice(notice="off").write(content)
        return message_like(message, content)
