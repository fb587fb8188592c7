"""Apps and strategies that nobody here wrote: parts of a model, other records, half precision, loops of their own."""

import copy
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedMedian,
    FedXgbBagging,
    Result,
    Strategy,
)
from torch import nn

import gammafl as gf
import gammafl.flower
from gammafl.flower import states
from gammafl.flower.disk import ClientDisk
from tests.flower.grid import InProcessGrid
from tests.flower.spoil import BAD_NODE, with_metrics

Step = Callable[[ArrayRecord, int], dict[str, Any]]
"""(the model that came, partition) → what the train function returns, record by record."""


def app_of(step: Step, mods: Iterable[Any]) -> ClientApp:
    app = ClientApp(mods=list(mods))

    @app.train()
    def train(message: Message, context: Context) -> Message:
        partition = int(context.node_config["partition-id"])
        metrics = MetricRecord({"num-examples": 1, "loss": 0.5})
        content: dict[str, Any] = {"metrics": metrics} | step(message.content.array_records["arrays"], partition)
        return Message(RecordDict(content), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        metrics = MetricRecord({"num-examples": 1, "first": first_of(message.content.array_records["arrays"])})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def first_of(record: ArrayRecord) -> float:
    return float(next(iter(gammafl.flower.state_dict(record).values())).reshape(-1)[0])


def down(record: ArrayRecord, partition: int) -> dict[str, Any]:
    """Every float falls by 1/4, by more at the first places."""
    return {"arrays": ArrayRecord({name: stepped(array) for name, array in record.items()})}


def stepped(array: Array) -> Array:
    values = array.numpy()
    if values.dtype.kind != "f":
        return array
    return Array(np.asarray(values - np.linspace(0.5, 0.25, values.size).reshape(values.shape), values.dtype))


MODEL = ArrayRecord({"body": Array(np.ones((4, 5), np.float32)), "head": Array(np.arange(6, dtype=np.float32))})


def start(
    strategy: Strategy, step: Step, directory: Path, model: ArrayRecord = MODEL, rounds: int = 3, nodes: int = 3
) -> tuple[Result, InProcessGrid]:
    grid = InProcessGrid(app_of(step, [gammafl.flower.compress(directory)]), nodes)
    return strategy.start(grid=grid, initial_arrays=copy.deepcopy(model), num_rounds=rounds), grid


def alone(strategy: Strategy, step: Step, model: ArrayRecord = MODEL, rounds: int = 3, nodes: int = 3) -> Result:
    grid = InProcessGrid(app_of(step, []), nodes)
    return strategy.start(grid=grid, initial_arrays=copy.deepcopy(model), num_rounds=rounds)


def equal(one: ArrayRecord, other: ArrayRecord) -> bool:
    return list(one) == list(other) and all(
        np.allclose(one[name].numpy(), other[name].numpy(), atol=1e-5) for name in one
    )


# --- what a reply may hold ----------------------------------------------------------------------------------


@pytest.mark.parametrize("inner", [FedAvg, FedAdam], ids=lambda kind: kind.__name__)
def test_a_reply_may_hold_a_part_of_the_tensors(inner: Callable[[], Strategy], tmp_path: Path) -> None:
    """FedAvg goes on with that part alone, as it does without us; FedAdam refuses it in both cases."""

    def head_alone(record: ArrayRecord, partition: int) -> dict[str, Any]:
        return {"arrays": ArrayRecord({"head": stepped(record["head"])})}

    if inner is FedAdam:
        with pytest.raises(Exception, match="do not match"):
            alone(inner(), head_alone)
        with pytest.raises(Exception, match="do not match"):
            start(gammafl.flower.Compressed(inner(), method="fedavg"), head_alone, tmp_path)
        return
    expected = alone(inner(), head_alone)
    result, _ = start(gammafl.flower.Compressed(inner(), method="fedavg"), head_alone, tmp_path)
    assert list(result.arrays) == ["head"]
    assert equal(result.arrays, expected.arrays)


def test_records_that_are_not_the_model_travel_as_they_are(tmp_path: Path) -> None:
    """As SCAFFOLD's control variates do, in both directions."""
    seen: list[tuple[float, float]] = []

    class Variates(FedAvg):
        def configure_train(self, *args: Any) -> Iterable[Message]:
            for message in super().configure_train(*args):
                content = RecordDict(dict(message.content))
                content["variates"] = ArrayRecord({"body": Array(np.full((4, 5), 7, np.float32))})
                yield Message(content, message.metadata.dst_node_id, MessageType.TRAIN)

        def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
            contents = [reply.content for reply in replies]
            seen.extend((first_of(c["arrays"]), first_of(c["variates"])) for c in contents)  # type: ignore[arg-type]
            return contents[0]["arrays"], MetricRecord()

    def both(record: ArrayRecord, partition: int) -> dict[str, Any]:
        return down(record, partition) | {"variates": ArrayRecord({"body": Array(np.full((4, 5), 8, np.float32))})}

    wrapped = gammafl.flower.Compressed(Variates(), method="fedavg")
    start(wrapped, both, tmp_path, rounds=2)
    assert seen == [(0.5, 8.0)] * 3 + [(0.0, 8.0)] * 3
    assert wrapped.history[0]["other_bytes"] > 3 * 80
    with pytest.raises(gf.InputError, match=r"several ArrayRecords .*arrays="):
        start(gammafl.flower.Compressed(Variates(arrayrecord_key="model"), method="fedavg", arrays="x"), both, tmp_path)


def test_a_train_function_that_returns_the_change_is_refused_and_told_how_to_say_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = ArrayRecord({"w": Array(np.random.default_rng(0).normal(size=2000).astype(np.float32))})

    class Adding(FedAvg):
        def configure_train(self, number: int, arrays: ArrayRecord, *args: Any) -> Iterable[Message]:
            self.model = arrays
            return super().configure_train(number, arrays, *args)

        def aggregate_train(self, number: int, replies: Iterable[Message]) -> Any:
            mean, metrics = super().aggregate_train(number, replies)
            if mean is not None:
                mean = ArrayRecord({"w": Array(self.model["w"].numpy() + mean["w"].numpy())})
            return mean, metrics

    def change(record: ArrayRecord, partition: int) -> dict[str, Any]:
        step = np.random.default_rng(10 + partition).normal(size=2000).astype(np.float32) / 10
        return {"arrays": ArrayRecord({"w": Array(step)})}

    with pytest.raises(gf.InputError, match=r"every client failed: .* replies='update'"):
        start(gammafl.flower.Compressed(Adding(), method="fedavg"), change, tmp_path / "a", model)
    assert "replies='update'" in caplog.text
    told = gammafl.flower.Compressed(Adding(), method="fedavg", replies="update")
    result, _ = start(told, change, tmp_path / "b", model)
    assert equal(result.arrays, alone(Adding(), change, model).arrays)


def test_an_empty_reply_or_one_with_other_tensors_costs_the_client_its_upload(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def odd(record: ArrayRecord, partition: int) -> dict[str, Any]:
        strange = {0: {}, 1: {"arrays": ArrayRecord({"other": Array(np.ones(3, np.float32))})}}
        return strange[partition] if partition in strange else down(record, partition)

    wrapped = gammafl.flower.Compressed(FedAvg(), method="fedavg")
    start(wrapped, odd, tmp_path)
    assert [record["clients"] for record in wrapped.history] == [["2"]] * 3
    assert "must return the model in one ArrayRecord" in caplog.text
    assert "tensors that it was not sent: other" in caplog.text


def test_an_evaluate_function_that_returns_the_model_is_told_of_the_bytes_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = app_of(down, [gammafl.flower.compress(tmp_path)])
    app._registered_funcs.pop("evaluate.default")

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        metrics = MetricRecord({"num-examples": 1})
        return Message(RecordDict({"arrays": message.content["arrays"], "metrics": metrics}), reply_to=message)

    gammafl.flower.Compressed(FedAvg(), method="fedavg").start(InProcessGrid(app, 3), copy.deepcopy(MODEL), 3)
    assert caplog.text.count("return the metrics alone") == 1


# --- what a model may be ------------------------------------------------------------------------------------


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


@pytest.mark.parametrize("inner", [FedAvg, FedMedian], ids=lambda kind: kind.__name__)
def test_whole_numbers_stay_whole_numbers_whatever_the_strategy_makes_of_them(
    inner: Callable[[], Strategy], tmp_path: Path
) -> None:
    types = []

    def look(record: ArrayRecord, partition: int) -> dict[str, Any]:
        types.append(record["1.num_batches_tracked"].dtype)
        network().load_state_dict(record.to_torch_state_dict())
        return down(record, partition)

    model = ArrayRecord(network().state_dict())
    start(gammafl.flower.Compressed(inner(), method="fedavg"), look, tmp_path, model)
    assert set(types) == {"int64"}


@pytest.mark.parametrize("inner", [FedAvg, FedAdam], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_a_model_of_another_precision_is_sent_and_given_back_in_it(
    precision: torch.dtype, inner: Callable[[], Strategy], tmp_path: Path
) -> None:
    """The strategy calculates in float32, so that steps finer than the model's precision add up."""
    seen = []

    def step(record: ArrayRecord, partition: int) -> dict[str, Any]:
        tensors = gammafl.flower.state_dict(record)
        seen.append({tensor.dtype for tensor in tensors.values()})
        lower = {name: tensor - tensor.abs().max() * 2**-6 for name, tensor in tensors.items()}
        return {"arrays": gammafl.flower.array_record(lower)}

    model = gammafl.flower.array_record({"w": torch.ones(64, dtype=precision), "b": torch.ones((), dtype=precision)})
    wrapped = gammafl.flower.Compressed(inner(), method=gf.top_k(keep=0.5))
    result, _ = start(wrapped, step, tmp_path, model, rounds=6)
    assert all(types == {precision} for types in seen)
    final = gammafl.flower.state_dict(result.arrays)
    assert {tensor.dtype for tensor in final.values()} == {precision}
    assert float(final["w"].float().mean()) < 1


def test_tensors_that_are_tied_are_sent_once_and_stay_tied(tmp_path: Path) -> None:
    shared = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    model = ArrayRecord({"embed": Array(shared), "bias": Array(np.zeros(6, np.float32)), "out": Array(shared)})

    def step(record: ArrayRecord, partition: int) -> dict[str, Any]:
        assert record["embed"].data == record["out"].data
        return down(record, partition)

    wrapped = gammafl.flower.Compressed(FedAdam(), method="top-k", keep=0.3)
    result, _ = start(wrapped, step, tmp_path, model, rounds=4)
    assert wrapped.training.layout.dim == 24 + 6
    assert result.arrays["embed"].data == result.arrays["out"].data


def test_tensors_that_only_began_equal_are_told_from_tied_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shared = np.random.default_rng(0).normal(size=8).astype(np.float32)
    model = ArrayRecord({"one": Array(shared), "other": Array(shared)})

    def step(record: ArrayRecord, partition: int) -> dict[str, Any]:
        return {"arrays": ArrayRecord({"one": stepped(record["one"]), "other": record["other"]})}

    with pytest.raises(gf.InputError, match="no upload counted"):
        start(gammafl.flower.Compressed(FedAvg(), method="fedavg"), step, tmp_path / "a", model)
    assert "tied=False" in caplog.text
    result, _ = start(gammafl.flower.Compressed(FedAvg(), method="fedavg", tied=False), step, tmp_path / "b", model)
    assert equal(result.arrays, alone(FedAvg(), step, model).arrays)


def test_frozen_tensors_are_never_sent(tmp_path: Path) -> None:
    def step(record: ArrayRecord, partition: int) -> dict[str, Any]:
        return {"arrays": ArrayRecord({"body": record["body"], "head": stepped(record["head"])})}

    wrapped = gammafl.flower.Compressed(FedAvg(), method=gf.top_k(k=20))
    result, _ = start(wrapped, step, tmp_path)
    assert result.arrays["body"].data == MODEL["body"].data
    assert {record["kept"] for record in wrapped.history} == {3 * 6}


def test_a_model_without_floats_is_refused_in_a_sentence(tmp_path: Path) -> None:
    model = ArrayRecord({"0": Array(np.zeros(4, np.uint8))})
    with pytest.raises(gf.InputError, match="no tensors of floating-point numbers"):
        start(gammafl.flower.Compressed(FedXgbBagging(), method="fedavg"), down, tmp_path, model)


# --- what a strategy may do ---------------------------------------------------------------------------------


class OwnLoop(FedAvg):
    """A loop of one's own, with an argument of one's own, that changes the model between rounds."""

    def start(  # type: ignore[override]
        self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int, shrink: float = 0.5
    ) -> Result:
        result, arrays = Result(), initial_arrays
        for number in range(1, num_rounds + 1):
            replies = grid.send_and_receive(self.configure_train(number, arrays, ConfigRecord({"lr": 0.1}), grid))
            changed, _ = self.aggregate_train(number, replies)
            if changed is not None:
                arrays = ArrayRecord({n: Array((a.numpy() * shrink).astype(np.float32)) for n, a in changed.items()})
        result.arrays = arrays
        return result


def test_a_strategy_with_its_own_start_keeps_it_and_clients_train_on_its_own_model(tmp_path: Path) -> None:
    expected = alone(OwnLoop(), down)
    result, _ = start(gammafl.flower.Compressed(OwnLoop(), method="fedavg"), down, tmp_path)
    assert equal(result.arrays, expected.arrays)


def test_a_start_that_takes_any_arguments_is_asked_for_its_rounds(tmp_path: Path) -> None:
    class Anything(FedAvg):
        def start(self, *args: Any, **kwargs: Any) -> Result:
            return super().start(*args, **kwargs)

    named, _ = start(gammafl.flower.Compressed(Anything(), method="fedavg"), down, tmp_path / "named")
    grid = InProcessGrid(app_of(down, [gammafl.flower.compress(tmp_path / "unnamed")]), 3)
    with pytest.raises(gf.InputError, match="rounds="):
        gammafl.flower.Compressed(Anything(), method="fedavg").start(grid, copy.deepcopy(MODEL), 3)
    told = gammafl.flower.Compressed(Anything(), method="fedavg", rounds=3)
    assert equal(told.start(grid, copy.deepcopy(MODEL), 3).arrays, named.arrays)


def test_a_strategy_that_sends_each_node_its_own_model_gets_that_model_back(tmp_path: Path) -> None:
    class Personal(FedAvg):
        def configure_train(self, number: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Any:
            for message in super().configure_train(number, arrays, config, grid):
                node = message.metadata.dst_node_id
                own = ArrayRecord({n: Array(a.numpy() + np.float32(node - 100)) for n, a in arrays.items()})
                yield Message(RecordDict({"arrays": own}), node, MessageType.TRAIN)

    expected = alone(Personal(), down)
    result, _ = start(gammafl.flower.Compressed(Personal(), method="fedavg"), down, tmp_path)
    assert equal(result.arrays, expected.arrays)


def test_a_round_that_the_strategy_throws_away_returns_to_the_clients(tmp_path: Path) -> None:
    """It gives no model back in round 1: what the clients sent then is sent again, and counts once."""

    class Skipping(FedAvg):
        def aggregate_train(self, number: int, replies: Iterable[Message]) -> Any:
            return (None, None) if number == 1 else super().aggregate_train(number, replies)

    wrapped = gammafl.flower.Compressed(Skipping(), method="fedavg")
    result, _ = start(wrapped, down, tmp_path)
    assert [len(record["clients"]) for record in wrapped.history] == [0, 3, 3]
    assert equal(result.arrays, alone(FedAvg(), down).arrays)


def test_a_reply_that_the_strategy_drops_before_it_aggregates_did_not_count(tmp_path: Path) -> None:
    class Dropping(FedAvg):
        def start(self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int) -> Result:  # type: ignore[override]
            arrays, result = initial_arrays, Result()
            for number in range(1, num_rounds + 1):
                replies = list(grid.send_and_receive(self.configure_train(number, arrays, ConfigRecord(), grid)))
                arrays, _ = self.aggregate_train(number, replies[1:] if number == 1 else replies)  # type: ignore[assignment]
            result.arrays = arrays
            return result

    wrapped = gammafl.flower.Compressed(Dropping(), method="fedavg")
    start(wrapped, down, tmp_path)
    assert [len(record["clients"]) for record in wrapped.history] == [2, 3, 3]


@pytest.mark.parametrize("claimed", [MessageType.EVALUATE, MessageType.QUERY])
@pytest.mark.parametrize("inner", [FedAvg, FedAdam], ids=lambda kind: kind.__name__)
def test_a_reply_is_what_was_asked_for_whatever_it_calls_itself(
    inner: Callable[[], Strategy], claimed: str, tmp_path: Path
) -> None:
    """A whole model that calls itself an evaluation would else reach the strategy unseen."""

    def forge(message: Message, reply: Message) -> Message:
        if message.metadata.dst_node_id == BAD_NODE and message.metadata.message_type == MessageType.TRAIN:
            huge = ArrayRecord({name: Array(np.full(array.shape, 1e30, np.float32)) for name, array in MODEL.items()})
            reply.content = RecordDict({"arrays": huge, "metrics": MetricRecord({"num-examples": 1, "loss": 0.5})})
            reply.metadata.message_type = claimed
        return reply

    grid = InProcessGrid(app_of(down, [gammafl.flower.compress(tmp_path)]), 4, forge)
    wrapped = gammafl.flower.Compressed(inner(), method="fedavg")
    result = wrapped.start(grid, copy.deepcopy(MODEL), 3)
    assert all("102" in record["refused"] for record in wrapped.history)
    assert all(np.abs(array.numpy()).max() < 100 for array in result.arrays.values())


def test_a_strategy_that_aggregates_elsewhere_is_told_to_do_it_in_aggregate_train(tmp_path: Path) -> None:
    class Elsewhere(FedAvg):
        def start(self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int) -> Result:  # type: ignore[override]
            arrays = initial_arrays
            for number in range(1, num_rounds + 1):
                replies = grid.send_and_receive(self.configure_train(number, arrays, ConfigRecord(), grid))
                arrays = next(iter(replies)).content.array_records["arrays"]
            return Result()

    with pytest.raises(gf.InputError, match="without a call of its aggregate_train"):
        start(gammafl.flower.Compressed(Elsewhere(), method="fedavg"), down, tmp_path)


def test_our_wrapper_inside_another_is_refused(tmp_path: Path) -> None:
    inside = gammafl.flower.Compressed(FedAvg(), method="fedavg")
    with pytest.raises(gf.InputError, match="put Compressed outside"):
        start(DifferentialPrivacyServerSideFixedClipping(inside, 0.0, 1.0, 3), down, tmp_path)


def test_what_is_no_strategy_of_the_message_api_is_named() -> None:
    from flwr.server.strategy import FedAvg as OldFedAvg

    with pytest.raises(gf.InputError, match="old API"):
        gammafl.flower.Compressed(OldFedAvg())  # type: ignore[arg-type]
    with pytest.raises(gf.InputError, match=r"write FedAvg\(…\)"):
        gammafl.flower.Compressed(FedAvg)  # type: ignore[arg-type]
    with pytest.raises(gf.InputError, match="such as"):
        gammafl.flower.Compressed("fedavg")  # type: ignore[arg-type]


def test_attributes_are_the_strategys_own() -> None:
    wrapped = gammafl.flower.Compressed(FedAvg(fraction_train=0.25))
    assert wrapped.fraction_train == 0.25
    with pytest.raises(AttributeError):
        wrapped.no_such_thing  # noqa: B018


# --- fleets -------------------------------------------------------------------------------------------------


def test_switched_off_everything_is_as_without_us(tmp_path: Path) -> None:
    wrapped = gammafl.flower.Compressed(FedAdam(), method="top-k", keep=0.1, enabled=False)
    result, _ = start(wrapped, down, tmp_path)
    assert equal(result.arrays, alone(FedAdam(), down).arrays)
    assert not list(tmp_path.iterdir())


def mixed(strategy: Strategy, directory: Path) -> tuple[Result, InProcessGrid]:
    """Node 101 has no mod."""
    grid = InProcessGrid(app_of(down, [gammafl.flower.compress(directory)]), 3)
    bare = InProcessGrid(app_of(down, []), 3)
    with_mod = grid.app

    def either(message: Message, context: Context) -> Message:
        return (bare.app if context.node_id == 101 else with_mod)(message, context)

    grid.app = either  # type: ignore[assignment]
    return strategy.start(grid, copy.deepcopy(MODEL), 3), grid


@pytest.mark.parametrize("inner", [FedAvg, FedAdam], ids=lambda kind: kind.__name__)
def test_a_client_without_the_mod_is_refused_or_counts_whole_if_one_says_so(
    inner: Callable[[], Strategy], tmp_path: Path
) -> None:
    strict = gammafl.flower.Compressed(inner(), method="fedavg")
    mixed(strict, tmp_path / "a")
    assert all("compress() as the first of" in record["refused"]["101"] for record in strict.history)
    lenient = gammafl.flower.Compressed(inner(), method="fedavg", accept_whole=True)
    result, _ = mixed(lenient, tmp_path / "b")
    assert [record["whole"] for record in lenient.history] == [1, 1, 1]
    assert equal(result.arrays, alone(inner(), down).arrays)


@pytest.mark.parametrize("odd", [{"extra": 1.0}, {"loss": [1.0, 2.0]}, {"num-examples": -1}], ids=str)
def test_a_client_with_odd_metrics_does_not_end_the_run_of_flowers_strategies(
    odd: dict[str, Any], tmp_path: Path
) -> None:
    """Alone, FedAdam would raise for all of them."""

    def bad(message: Message, reply: Message) -> Message:
        if message.metadata.dst_node_id == BAD_NODE and message.metadata.message_type == MessageType.TRAIN:
            with_metrics(**odd)(reply.content)
        return reply

    grid = InProcessGrid(app_of(down, [gammafl.flower.compress(tmp_path)]), 4, bad)
    wrapped = gammafl.flower.Compressed(FedAdam(), method="fedavg")
    wrapped.start(grid, copy.deepcopy(MODEL), 3)
    assert all(sorted(record["clients"]) == ["0", "1", "3"] for record in wrapped.history)


def test_a_bad_client_does_not_cost_the_others_a_round_of_differential_privacy(tmp_path: Path) -> None:
    def bad(message: Message, reply: Message) -> Message:
        if message.metadata.dst_node_id == BAD_NODE and "update" in reply.content.array_records.get("arrays", {}):
            reply.content["arrays"] = ArrayRecord({"update": Array("uint8", (3,), "gammafl.message", b"abc")})
        return reply

    grid = InProcessGrid(app_of(down, [gammafl.flower.compress(tmp_path)]), 4, bad)
    private = DifferentialPrivacyServerSideFixedClipping(FedAvg(), 0.0, 5.0, 4)
    wrapped = gammafl.flower.Compressed(private, method="fedavg")
    wrapped.start(grid, copy.deepcopy(MODEL), 3)
    assert all(sorted(record["clients"]) == ["0", "1", "3"] for record in wrapped.history)


def test_an_app_of_flowers_old_api_is_told_what_to_do(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    app = app_of(down, [gammafl.flower.compress(tmp_path)])
    content = RecordDict({"fitins.parameters": MODEL, "fitins.config": ConfigRecord({})})
    reply = app(Message(content, 100, MessageType.TRAIN), Context(1, 100, {"partition-id": 0}, RecordDict(), {}))
    assert "old API" in str(reply.error.reason)


# --- states ---------------------------------------------------------------------------------------------------


WORD = "0123456789abcdef"
"""As a server's name for its training."""


def test_the_end_of_a_training_takes_the_clients_states_with_it(tmp_path: Path) -> None:
    for ends in (False, True):
        grid = InProcessGrid(app_of(down, [gammafl.flower.compress(tmp_path)]), 3)
        grid.ends = ends
        gammafl.flower.Compressed(FedAvg(), method="top-k").start(grid, copy.deepcopy(MODEL), 2)
        assert len(states.trainings(tmp_path)) == 1, "what was left by the training whose end was missed"


def test_states_of_old_trainings_go_when_another_begins_and_the_new_ones_stay(tmp_path: Path) -> None:
    grid = InProcessGrid(app_of(down, [gammafl.flower.compress(tmp_path, state_bytes=0)]), 3)
    for _ in range(3):
        gammafl.flower.Compressed(FedAvg(), method="top-k").start(grid, copy.deepcopy(MODEL), 2)
        (left,) = states.trainings(tmp_path)
        assert left.clients == 3


def test_only_files_of_ours_are_ever_removed(tmp_path: Path) -> None:
    folder, own = states.folder_of(tmp_path, WORD), tmp_path / "training-data"
    folder.mkdir()
    own.mkdir()
    for name in ("0.state", "0.lock", "0.state.damaged-12ab", "notes.txt"):
        (folder / name).write_text("")
    (folder / "1.state").symlink_to(tmp_path / "that is not there")
    (tmp_path / "training-notes.txt").write_text("a file, not a folder")
    (own / "best.model").write_text("in a folder that is no training of ours")
    assert [gone.training for gone in states.clean(tmp_path, days=0)] == [WORD]
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    assert (tmp_path / "training-notes.txt").exists()
    assert (own / "best.model").exists()


def test_states_of_a_client_that_trains_at_the_moment_stay(tmp_path: Path) -> None:
    """Another training begins meanwhile, or somebody cleans: what the client computes could not be stored."""

    def cleaned(record: ArrayRecord, partition: int) -> dict[str, Any]:
        assert states.clean(tmp_path, days=0, most_bytes=0) == []
        return down(record, partition)

    grid = InProcessGrid(app_of(cleaned, [gammafl.flower.compress(tmp_path)]), 3)
    wrapped = gammafl.flower.Compressed(FedAvg(), method="top-k")
    wrapped.start(grid, copy.deepcopy(MODEL), 2)
    assert [len(record["clients"]) for record in wrapped.history] == [3, 3]
    assert len(states.clean(tmp_path, days=0)) == 1


def test_no_client_begins_to_train_while_its_state_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = InProcessGrid(app_of(down, [gammafl.flower.compress(tmp_path)]), 2)
    gammafl.flower.Compressed(FedAvg(), method="top-k").start(grid, copy.deepcopy(MODEL), 1)
    (left,) = states.trainings(tmp_path)
    unlink, begun = Path.unlink, []

    def begin(path: Path, missing_ok: bool = False) -> None:
        if path.suffix == ".state":
            with suppress(gf.InputError), ClientDisk(tmp_path, grid.contexts[100], left.training).locked(0.0):
                begun.append(path)
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", begin)
    assert states.clean(tmp_path, days=0) == [left]
    assert not begun
    assert not left.path.exists()


def test_simulated_clients_keep_their_states_in_a_temporary_directory_that_all_workers_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flower's simulation has its grid in the server's process; a client may train in another worker each round."""

    class InMemoryGrid(InProcessGrid):
        """Called as Flower's own is, by which a simulation is told."""

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("GAMMAFL_STATE", raising=False)
    seen = []

    def look(record: ArrayRecord, partition: int) -> dict[str, Any]:
        seen.append(len(states.trainings(states.simulation_directory())))
        return down(record, partition)

    grid = InMemoryGrid(app_of(look, [gammafl.flower.compress()]), 3)
    grid.ends = True
    gammafl.flower.Compressed(FedAvg(), method="top-k").start(grid, copy.deepcopy(MODEL), 2)
    assert seen == [1] * 6
    assert states.simulation_directory().parent == tmp_path
    assert not list(states.simulation_directory().iterdir())
