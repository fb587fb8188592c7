"""Flower without processes: a grid that calls the ClientApps of its nodes, over serialised messages."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.serverapp import Grid

Fate = Callable[[Message, Message], Message | None]
"""(message, reply) → the reply as it reaches the server; None if it gets lost."""


def arrives(_: Message, reply: Message) -> Message:
    return reply


class InProcessGrid(Grid):
    """Nodes 100, 101, … with partitions 0, 1, …; a node can be restarted under another address."""

    def __init__(self, app: ClientApp, nodes: int, fate: Fate = arrives) -> None:
        _identify_task()
        self.app = app
        self.fate = fate
        self.contexts = {100 + i: self._context(100 + i, i) for i in range(nodes)}
        self.unnoticed: set[int] = set()
        """Addresses of nodes that are gone, as the server has not noticed yet."""
        self.sent: list[Message] = []
        self.reached: set[int] = set()
        """The nodes that messages reach; empty: all."""
        self.ends = False
        """Whether clients hear of the end of the training; if not, their states stay to be looked at."""

    def _context(self, node: int, partition: int) -> Context:
        return Context(1, node, {"partition-id": partition}, RecordDict(), {})

    def restart(self, node: int, new_address: int, noticed: bool = True) -> None:
        """The node's memory is gone, and the server knows it by another id."""
        self.unnoticed |= set() if noticed else {node}
        partition = self.contexts.pop(node).node_config["partition-id"]
        assert isinstance(partition, int)
        self.contexts[new_address] = self._context(new_address, partition)

    def get_node_ids(self) -> Iterable[int]:
        return [*self.contexts, *self.unnoticed]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        replies = []
        for message in messages:
            terms = message.content.config_records.get("gammafl")
            if not self.ends and terms is not None and terms.get("notice") == "end":
                continue
            self.sent.append(_copied(message))
            if (node := message.metadata.dst_node_id) not in self.contexts or node not in (self.reached or [node]):
                continue
            reply = self.app(_copied(message), self.contexts[node])
            if reply.has_content():
                reply.content = _carried(reply.content)
            if (arrived := self.fate(message, reply)) is not None:
                replies.append(arrived)
        return replies

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any: ...

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError


class Together(InProcessGrid):
    """The nodes of several grids."""

    def __init__(self, *grids: InProcessGrid) -> None:
        self.grids = list(grids)

    def get_node_ids(self) -> Iterable[int]:
        return [node for grid in self.grids for node in grid.get_node_ids()]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        sent = list(messages)
        return [
            reply
            for grid in self.grids
            for reply in grid.send_and_receive([m for m in sent if m.metadata.dst_node_id in grid.contexts])
        ]


def _identify_task() -> None:
    """Newer versions of Flower write into a message which task it is of."""
    with suppress(ImportError):
        from flwr.supercore.task_identity import TaskIdentity

        TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1


def _carried(content: RecordDict) -> RecordDict:
    return recorddict_from_proto(recorddict_to_proto(content))


def _copied(message: Message) -> Message:
    metadata = message.metadata
    return Message(_carried(message.content), dst_node_id=metadata.dst_node_id, message_type=metadata.message_type)


def folder(directory: Path) -> Path:
    """Where the clients of the one training keep their states."""
    (path,) = directory.glob("training-*")
    return path


def state_files(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*.state"))
