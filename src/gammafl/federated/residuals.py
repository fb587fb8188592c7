"""The memory of each client that ever took part."""

from collections.abc import Mapping

from gammafl.core.compressors import Compressor
from gammafl.core.error_feedback import ErrorFeedback
from gammafl.core.kernels import Vector


class ResidualStore:
    """Client → error feedback, made when the client first takes part."""

    def __init__(self, method: Compressor, dim: int) -> None:
        self.method = method
        self.dim = dim
        self._memories: dict[int, ErrorFeedback] = {}

    def memory(self, client: int) -> ErrorFeedback:
        if client not in self._memories:
            self._memories[client] = ErrorFeedback(self.method, self.dim)
        return self._memories[client]

    def residuals(self) -> dict[int, Vector]:
        """The residual of each client that took part, for a checkpoint."""
        return {client: memory.residual for client, memory in sorted(self._memories.items())}

    def restore(self, residuals: Mapping[int, Vector]) -> None:
        self._memories = {c: ErrorFeedback(self.method, self.dim, r) for c, r in residuals.items()}
