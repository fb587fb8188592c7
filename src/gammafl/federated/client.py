"""A client's part of a round (Algorithm 1, lines 6-14)."""

from dataclasses import dataclass

from gammafl.core.error_feedback import ErrorFeedback
from gammafl.core.wire import PositionCoding, encode
from gammafl.tasks.base import LocalUpdate


@dataclass(frozen=True)
class Upload:
    """What reaches the server from one client: bytes, and the client's own training loss."""

    client: int
    payload: bytes
    loss: float


def make_upload(
    client: int, local: LocalUpdate, memory: ErrorFeedback, t: int, positions: PositionCoding = "auto"
) -> Upload:
    """Compress with error feedback at iteration t, the end of the round (lines 11-13), and encode (line 14)."""
    return Upload(client, encode(memory.compress(local.delta, t, local.largest), positions), local.loss)
