"""FedAvg with compressed updates in one line. The seed determines the participants."""

import inspect
from collections.abc import Iterable
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from flwr.serverapp.strategy.strategy_utils import sample_nodes

from gammafl.core.errors import require
from gammafl.federated import server
from gammafl.flower.strategy import LOG, Compressed


class SeededFedAvg(FedAvg):
    """FedAvg that draws the participants from the seed and the round, as the simulator does."""

    def __init__(self, seed: int = 0, **options: Any) -> None:
        super().__init__(**options)
        require(seed >= 0, f"seed must not be negative, got {seed}")
        self.seed = seed

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Algorithm 1, line 3."""
        if self.fraction_train == 0.0:
            return []
        count = max(int(len(list(grid.get_node_ids())) * self.fraction_train), self.min_train_nodes)
        _, connected = sample_nodes(grid, self.min_available_nodes, count)  # waits until enough nodes are connected
        nodes = sorted(connected)
        picked = [nodes[i] for i in server.pick(len(nodes), count, self.seed, server_round - 1)]
        LOG.info("configure_train: Sampled %s nodes (out of %s)", len(picked), len(nodes))
        config["server-round"] = server_round
        content = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config})
        return self._construct_messages(content, picked, MessageType.TRAIN)


class CompressedFedAvg(Compressed):
    """`Compressed(FedAvg(…), …)` in one line, with participants that follow from `seed`.

    seed       determines which clients take part in which round
    settings   all settings of `Compressed`, and all options of Flower's FedAvg

    >>> CompressedFedAvg(method="top-k", keep=0.001, fraction_train=0.5).strategy.fraction_train
    0.5
    """

    def __init__(self, *, seed: int = 0, **settings: Any) -> None:
        names = inspect.signature(Compressed).parameters.keys() - {"strategy"}
        ours = {name: settings.pop(name) for name in list(settings) if name in names}
        super().__init__(SeededFedAvg(seed, **settings), **ours)
