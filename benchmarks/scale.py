"""A calculation of what a round costs a client and the server at any size, from unit costs that are measured here."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.measure import KEPT, fused, medians, repeated, show_seconds
from benchmarks.wire import entropy, scattered
from gammafl.core import aggregate
from gammafl.core.wire import decode, encode, header_bytes
from gammafl.federated.units import show_bytes
from gammafl.report.tables import TextTable

LONG, MANY, FEW = 32_000_000, 100_000, 100


@dataclass(frozen=True)
class UnitCosts:
    """Seconds of compression per element, and of messages and their aggregation, per entry and per message."""

    element: float
    encode_entry: float
    encode_message: float
    receive_entry: float
    receive_message: float

    def upload(self, dim: float) -> float:
        """The seconds of a client's compression and message."""
        return self.element * dim + self.encode_entry * KEPT * dim + self.encode_message

    def receive(self, dim: float) -> float:
        """The seconds of a message and its aggregation at the server."""
        return self.receive_entry * KEPT * dim + self.receive_message


def measure(repeats: int) -> UnitCosts:
    """Measures the unit costs with a long vector, and with messages that have many and few of its entries."""
    many, few = scattered(LONG, MANY), scattered(LONG, FEW)
    model, messages = np.zeros(LONG, np.float32), {"many": encode(many), "few": encode(few)}

    def receive(message: bytes) -> None:
        aggregate.subtract(model, [decode(message)], [0.5])

    seconds = medians(
        {
            "compress": fused(LONG),
            "encode many": partial(encode, many),
            "encode few": repeated(partial(encode, few), 100),
            "receive many": partial(receive, messages["many"]),
            "receive few": repeated(partial(receive, messages["few"]), 100),
        },
        repeats,
    )
    encode_entry, receive_entry = (seconds[f"{what} many"] / MANY for what in ("encode", "receive"))
    return UnitCosts(
        seconds["compress"] / LONG,
        encode_entry,
        max(0.0, seconds["encode few"] / 100 - FEW * encode_entry),
        receive_entry,
        max(0.0, seconds["receive few"] / 100 - FEW * receive_entry),
    )


def message_bytes(dim: float) -> float:
    """The bytes of an upload with 0.1% kept: header, positions at 3% above their entropy, and 4 bytes per value."""
    return header_bytes(int(dim), round(KEPT * dim)) + 1.03 * dim * entropy(KEPT) / 8 + 4 * KEPT * dim


def tables(costs: UnitCosts, dims: Sequence[float], clients: Sequence[float]) -> list[TextTable]:
    return [_units(costs), _of_client(costs, dims), _of_server(costs, dims, clients)]


def _units(costs: UnitCosts) -> TextTable:
    return TextTable(
        "unit costs, measured",
        ["", "time"],
        [
            ["compression, an element", show_seconds(costs.element)],
            ["encoding, an entry", show_seconds(costs.encode_entry)],
            ["encoding, a message", show_seconds(costs.encode_message)],
            ["decoding and aggregating, an entry", show_seconds(costs.receive_entry)],
            ["decoding and aggregating, a message", show_seconds(costs.receive_message)],
        ],
    )


def _of_client(costs: UnitCosts, dims: Sequence[float]) -> TextTable:
    return TextTable(
        "a client's round without its training, 0.1% kept",
        ["d", "model, update and residual", "compression and message", "uplink", "uplink of FedAVG", "downlink"],
        [
            [
                f"{dim:.0e}",
                show_bytes(12 * dim),
                show_seconds(costs.upload(dim)),
                show_bytes(message_bytes(dim)),
                show_bytes(4 * dim),
                show_bytes(4 * dim),
            ]
            for dim in dims
        ],
        "The downlink is the whole model.",
    )


def _of_server(costs: UnitCosts, dims: Sequence[float], clients: Sequence[float]) -> TextTable:
    return TextTable(
        "the server's round, 0.1% kept: one core, and the bytes that come in",
        ["d", "model and its average", *(f"{n:.0e} uploads" for n in clients)],
        [
            [
                f"{dim:.0e}",
                show_bytes(8 * dim),
                *(f"{show_seconds(n * costs.receive(dim))}, {show_bytes(n * message_bytes(dim))}" for n in clients),
            ]
            for dim in dims
        ],
        "The server keeps a round's messages until all have come. This takes as many bytes again, and 8 bytes per entry"
        " once they are decoded.",
    )
