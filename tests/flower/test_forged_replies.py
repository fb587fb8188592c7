"""A client that forges the form of its reply costs its own upload, whatever the strategy."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import FedAvg, Strategy

import gammafl as gf
import gammafl.flower
from gammafl.core.aggregate import LARGEST_MODEL
from gammafl.core.wire import encode
from gammafl.flower.training import LARGEST_SQUARED
from tests.flower.grid import InProcessGrid
from tests.flower.spoil import BAD_NODE, with_payload, with_terms, without
from tests.flower.test_strategies import DIM, app_with, record_of

NODES = 5


class OwnFedAvg(FedAvg):
    """A strategy of one's own: what metrics it wants is its own affair."""

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        valid = [reply for reply in replies if reply.has_content() and reply.content.metric_records]
        return super().aggregate_train(server_round, valid)


STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "FedAvg": FedAvg,
    "FedAdam": lambda: flower.FedAdam(eta=0.1),
    "FedYogi": lambda: flower.FedYogi(eta=0.1),
    "FedAvgM": lambda: flower.FedAvgM(server_momentum=0.9),
    "DP around one's own": lambda: flower.DifferentialPrivacyServerSideFixedClipping(OwnFedAvg(), 0.0, 10.0, NODES),
}
every_strategy = pytest.mark.parametrize("name", STRATEGIES)


def whole(**tensors: Array) -> Callable[[Message], None]:
    """A whole model, as of a client without the mod."""

    def forge(reply: Message) -> None:
        del reply.content["gammafl"]
        reply.content["arrays"] = ArrayRecord({**record_of(np.zeros(DIM, np.float32)), **tensors})

    return forge


def of_type(kind: str, forge: Callable[[Message], None]) -> Callable[[Message], None]:
    def forge_type(reply: Message) -> None:
        forge(reply)
        reply.metadata.__dict__["_message_type"] = kind

    return forge_type


def spoilt(spoil: Callable[[RecordDict], None]) -> Callable[[Message], None]:
    return lambda reply: spoil(reply.content)


NAN = Array(np.full(20, np.nan, np.float32))
FORGED: dict[str, tuple[Callable[[Message], None], str]] = {
    "a part of the tensors": (spoilt(with_terms(returned="1")), "other names"),
    "no metrics": (spoilt(without("metrics")), "etric"),
    "a model that is not finite, as if to an evaluation": (
        of_type("evaluate", whole(**{"a.bias": NAN})),
        "whole model",
    ),
    "a model that is not finite, as to a query": (of_type("query", whole(**{"a.bias": NAN})), "whole model"),
}


def played(inner: Strategy, app: ClientApp, forge: Callable[[Message], None], **settings: Any) -> Any:
    """Five rounds, from the second on with a forged reply."""

    def fate(message: Message, reply: Message) -> Message:
        trains = message.metadata.message_type == MessageType.TRAIN and reply.has_content()
        if trains and message.metadata.dst_node_id == BAD_NODE and message.content["config"]["server-round"] > 1:  # type: ignore[operator]
            forge(reply)
        return reply

    chosen = gammafl.flower.Compressed(inner, method="top-k", keep=0.3, **settings)
    grid = InProcessGrid(app, NODES, fate)
    result = chosen.start(grid, record_of(np.zeros(DIM, np.float32)), 5, train_config=ConfigRecord({"lr": 0.2}))
    assert all(np.isfinite(array.numpy()).all() for array in result.arrays.values())
    assert all({"0", "1", "3", "4"} <= set(record["clients"]) for record in chosen.history)
    assert len(chosen.history) == 5
    return chosen


@every_strategy
@pytest.mark.parametrize("kind", FORGED)
def test_a_forged_reply_is_refused_and_the_others_count(name: str, kind: str, tmp_path: Path) -> None:
    forge, reason = FORGED[kind]
    chosen = played(STRATEGIES[name](), app_with([gammafl.flower.compress(tmp_path)]), forge)
    assert all(reason in record["refused"][str(BAD_NODE)] for record in chosen.history[1:])


@every_strategy
@pytest.mark.parametrize("value", [LARGEST_MODEL, 4 * LARGEST_SQUARED, LARGEST_SQUARED])
@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_no_value_ends_the_run_of_any_strategy(name: str, value: float, sign: int, tmp_path: Path) -> None:
    """Moments are squared and momentum adds up: the largest value that is accepted leaves both finite."""
    payload = encode(gf.SparseUpdate(DIM, [3], [sign * value]))
    played(STRATEGIES[name](), app_with([gammafl.flower.compress(tmp_path)]), spoilt(with_payload(payload)))


@pytest.mark.parametrize("mask", ["3", "03"])
def test_all_tensors_by_name_are_all_tensors(mask: str, tmp_path: Path) -> None:
    """FedAvg's sparse path goes on: a missing upload is not made up for by the others."""
    tops = []
    for name, forge in {"all": spoilt(with_terms(returned=mask)), "unsaid": lambda reply: None}.items():
        chosen = gammafl.flower.Compressed(FedAvg(), method="fedavg")

        def fate(message: Message, reply: Message, forge: Callable[[Message], None] = forge) -> Message | None:
            forge(reply) if message.metadata.dst_node_id == BAD_NODE else None
            return reply if message.metadata.dst_node_id != 104 else None

        grid = InProcessGrid(app_with([gammafl.flower.compress(tmp_path / name)]), NODES, fate)
        inner: Any = chosen.strategy
        inner.fraction_evaluate = 0.0
        tops.append(chosen.start(grid, record_of(np.zeros(DIM, np.float32)), 1).arrays["a.bias"].data)
    assert tops[0] == tops[1]


TIED = np.linspace(1, 2, 6, dtype=np.float32)


def tied_model(**tensors: Array) -> ArrayRecord:
    whole_numbers = Array(np.array(3))
    return ArrayRecord({"a": Array(TIED), "b": Array(TIED), "n": whole_numbers, "c": Array(TIED[:2]), **tensors})


WRONG = {
    "a tied tensor that is not finite": {"b": Array(np.full(6, np.nan, np.float32))},
    "a tied tensor of another shape": {"b": Array(np.zeros(7, np.float32))},
    "whole numbers of another shape": {"n": Array(np.zeros((2, 2), np.int64))},
    "text in place of a number": {"n": Array(np.array("text"))},
    "bytes that are no tensor": {"n": Array("int64", (), "numpy.ndarray", b"junk")},
}


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("name", ["FedAvg", "FedAdam"])
def test_a_whole_model_that_is_none_is_refused(name: str, kind: str, tmp_path: Path) -> None:
    app = ClientApp(mods=[gammafl.flower.compress(tmp_path)])

    @app.train()
    def train(message: Message, context: Any) -> Message:
        content = RecordDict({"arrays": tied_model(), "metrics": MetricRecord({"num-examples": 1})})
        return Message(content, reply_to=message)

    def fate(message: Message, reply: Message) -> Message:
        if message.metadata.dst_node_id == BAD_NODE:
            del reply.content["gammafl"]
            reply.content["arrays"] = tied_model(**WRONG[kind])
        return reply

    inner: Any = STRATEGIES[name]()
    inner.fraction_evaluate = 0.0
    chosen = gammafl.flower.Compressed(inner, method="top-k", keep=0.3, accept_whole=True)
    chosen.start(InProcessGrid(app, NODES, fate), tied_model(), 2)
    assert [sorted(record["clients"]) for record in chosen.history] == [["0", "1", "3", "4"]] * 2
    assert all("its model" in record["refused"][str(BAD_NODE)] for record in chosen.history)


def no_change() -> bytes:
    return encode(gf.SparseUpdate(DIM, [], []))


def too_little() -> bytes:
    """Its norm squared is 0 in float32."""
    return encode(gf.SparseUpdate(DIM, [3], [1e-30]))


CLIPPING: dict[str, Callable[[], Strategy]] = {
    "fixed": lambda: flower.DifferentialPrivacyServerSideFixedClipping(FedAvg(), 0.0, 10.0, NODES),
    "adaptive": lambda: flower.DifferentialPrivacyServerSideAdaptiveClipping(FedAvg(), 0.0, NODES),
}


@pytest.mark.parametrize("clipping", CLIPPING)
@pytest.mark.parametrize("payload", [no_change, too_little])
def test_an_upload_that_changes_nothing_does_not_end_a_run_that_clips(
    clipping: str, payload: Callable[[], bytes], tmp_path: Path
) -> None:
    """Flower's code divides by the norm of the change. An honest upload may be empty, too."""
    app = app_with([gammafl.flower.compress(tmp_path)])
    chosen = played(CLIPPING[clipping](), app, spoilt(with_payload(payload())))
    assert all("changes nothing" in record["refused"][str(BAD_NODE)] for record in chosen.history[1:])


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), -1.0, 1e300, -(2**63)])
def test_no_loss_ends_the_run_of_qfedavg(loss: float, tmp_path: Path) -> None:
    """It weights each update by a power of the loss that the client tells."""
    inner = flower.QFedAvg(client_learning_rate=0.2, q=0.1, train_loss_key="train_loss")

    def forge(reply: Message) -> None:
        reply.content.metric_records["metrics"]["train_loss"] = loss

    chosen = played(inner, app_with([gammafl.flower.compress(tmp_path)]), forge)
    assert all("train_loss" in record["refused"][str(BAD_NODE)] for record in chosen.history[1:])


def test_a_loss_that_no_power_makes_too_large_counts(tmp_path: Path) -> None:
    inner = flower.QFedAvg(client_learning_rate=0.2, q=0.1, train_loss_key="train_loss")
    chosen = played(inner, app_with([gammafl.flower.compress(tmp_path)]), lambda reply: None)
    assert not any(record["refused"] for record in chosen.history)


@pytest.mark.parametrize("name", ["DP around one's own", "Bulyan"])
def test_a_whole_model_may_have_its_tensors_in_another_order(name: str, tmp_path: Path) -> None:
    """Some strategies go by the order of tensors."""
    make = STRATEGIES.get(name, lambda: flower.Bulyan(num_malicious_nodes=0))

    def forge(reply: Message) -> None:
        del reply.content["gammafl"]
        model = record_of(np.ones(DIM, np.float32))
        reply.content["arrays"] = ArrayRecord(dict(reversed(list(model.items()))))

    chosen = played(make(), app_with([gammafl.flower.compress(tmp_path)]), forge, accept_whole=True)
    assert [record.get("whole", 0) for record in chosen.history] == [0, 1, 1, 1, 1]
