"""FedAvg's aggregation over sparse updates, and checks of a strategy before it runs."""

from collections.abc import Sequence
from typing import Any, cast

from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp.strategy import FedAvg, Strategy

from gammafl.core import aggregate
from gammafl.core.errors import InputError, require
from gammafl.federated.server_exchange import Arrival
from gammafl.flower.metrics import averaged
from gammafl.flower.training import Training
from gammafl.flower.wrapping import layers


def require_strategy(strategy: Any) -> None:
    """Raises an `InputError` if `strategy` is not a strategy of Flower's message API."""
    if isinstance(strategy, Strategy):
        return
    if isinstance(strategy, type):
        raise InputError(f"Compressed takes a strategy, not its class: write {strategy.__name__}(…)")
    if type(strategy).__module__.startswith("flwr.server.") or hasattr(strategy, "configure_fit"):
        raise InputError(
            f"{type(strategy).__name__} is a strategy of Flower's old API (flwr.server.strategy, NumPyClient). Derive"
            " it from one of flwr.serverapp.strategy, where Flower's own have the same names, and write the app with"
            " @app.main() and @app.train(): Flower's guide 'Upgrade to Message API' shows how"
        )
    raise InputError(f"Compressed takes a strategy such as flwr.serverapp.strategy.FedAvg(), got {strategy!r:.80}")


def require_sums(compressed: Any) -> None:
    """Refuses `privacy` if the sum of the uploads is not made in this package.

    Another strategy could add up the uploads, or decide something from them, without noise.
    """
    if compressed.privacy is None:
        return
    plain = is_plain(compressed.strategy) and not compressed.accept_whole and compressed.replies != "update"
    require(
        plain,
        "privacy needs a server that averages compressed updates of one model, as plain FedAvg does. Around other"
        " strategies Flower's own DP wrappers work: Compressed(DifferentialPrivacyServerSideFixedClipping(…))",
    )
    require(compressed.enabled, "privacy: enabled=False switches it off too; leave out privacy or enabled=False")
    require(compressed.min_accepted == 1, "privacy: min_accepted would reveal how many clients answered; leave it out")


def is_flowers(strategy: Strategy) -> bool:
    """Whether the strategy's aggregation is Flower's own code. What that code needs is known."""
    return type(strategy).aggregate_train.__module__.startswith("flwr.") and "aggregate_train" not in vars(strategy)


def is_plain(strategy: Strategy) -> bool:
    """Whether the strategy aggregates as FedAvg does. So do FedProx, and subclasses that change other methods."""
    own = type(strategy).aggregate_train is not FedAvg.aggregate_train or "aggregate_train" in vars(strategy)
    return isinstance(strategy, FedAvg) and not own


def attribute(strategy: Any, name: str) -> Any:
    """An attribute of the strategy, or of the strategy that it wraps; None if neither has it."""
    return next((getattr(layer, name) for layer in layers(strategy) if hasattr(layer, name)), None)


def weight_key(strategy: Strategy) -> str | None:
    """The metric by which Flower's code weights the uploads. None: the strategy is not Flower's, it decides itself."""
    inner: Any = strategy
    while is_flowers(inner) and isinstance(getattr(inner, "strategy", None), Strategy):
        inner = inner.strategy
    return attribute(inner, "weighted_by_key") if is_flowers(inner) else None


def can_subtract(training: Training, arrivals: Sequence[Arrival]) -> bool:
    """Whether FedAvg can add up the sparse updates: all clients got the same model, and returned all its tensors."""
    if training.terms.privacy is not None:  # `subtract` adds the noise, also if no client answered
        one = len({id(base) for base in training.open.bases.values()}) == 1
        require(one, "privacy needs one model for all clients of a round, and this strategy sends several")
        return True
    if not arrivals or not training.terms.plain or training.open.whole or training.terms.replies == "update":
        return False
    nodes = {int(arrival.address) for arrival in arrivals}
    return len({id(training.open.bases[node]) for node in nodes}) == 1 and not nodes & training.open.partial


def subtract(
    strategy: Strategy, training: Training, arrivals: Sequence[Arrival], replies: Sequence[Message]
) -> tuple[ArrayRecord, MetricRecord]:
    """x ← x − Σ weight·Δ̂_i, in O(nnz) plus one copy of the model (Algorithm 1, line 19).

    The weights of the updates that arrived are not scaled up for a missing one. It is sent again later, and would
    count twice.
    """
    fedavg = cast(FedAvg, strategy)
    fedavg._check_and_log_replies(replies, is_train=True, validate=False)
    base = next(iter(training.open.bases.values())) if not arrivals else training.open.bases[int(arrivals[0].address)]
    asked = len(training.exchange.asked)
    shares = aggregate.weights([arrival.weight for arrival in arrivals], len(arrivals), "normalized", asked)
    model = base.vector.copy()
    training.exchange.subtract(model, arrivals, shares, asked)
    aggregate.clamp(model)
    training.layout.clamp(model)
    handed = {arrival.address for arrival in arrivals}
    counted = [reply for reply in replies if reply.metadata.src_node_id in handed]
    metrics = averaged(fedavg.train_metrics_aggr_fn, counted, fedavg.weighted_by_key)
    return training.layout.exact_record(model, base.record), metrics
