"""What a strategy remembers is stored, and what can't be stored is named before the first round."""

import inspect
import logging
import random
from collections import Counter, OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import flwr.serverapp.strategy as flowers
import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg

import gammafl as gf
from gammafl.flower.packing import NotPlainError, Packer, unpack
from gammafl.flower.strategy_state import StrategyState
from tests.flower.test_strategies import STRATEGIES

RECORD = ArrayRecord({"w": Array(np.arange(6, dtype=np.float32).reshape(2, 3))})
VALUES = [
    None,
    True,
    -7,
    2**70,
    0.1,
    float("inf"),
    "text",
    b"bytes",
    [1, [2.5, None]],
    (1, "a"),
    {1, 2},
    {"a": 1, 2: (3,)},
    np.float64(0.1),
    np.arange(5, dtype=np.int64),
    np.full((2, 0, 3), np.nan),
    np.arange(12.0).reshape(3, 4).T,
    RECORD,
    MetricRecord({"loss": 0.5, "counts": [1, 2]}),
    ConfigRecord({"lr": 0.1, "name": "x", "raw": b"\x00"}),
    RecordDict({"arrays": RECORD, "metrics": MetricRecord({"n": 1})}),
    torch.arange(4.0),
    torch.ones(3, dtype=torch.bfloat16),
    OrderedDict(b=1, a=2),
    Counter("abb"),
    defaultdict(int, a=1),
    defaultdict(list, {1: [2]}),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__}-{str(value)[:12]}")
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    packer, again = Packer(), Packer()
    packed = packer.pack(value)
    back = unpack(packed, packer.tensors)
    assert type(back) is type(value)
    assert again.pack(back) == packed
    assert [one.tobytes() for one in again.tensors.values()] == [one.tobytes() for one in packer.tensors.values()]


def test_an_array_in_two_places_is_stored_once() -> None:
    packer, array = Packer(), np.ones(1000)
    packer.pack({"one": array, "two": [array, RECORD["w"]], "three": RECORD})
    assert len(packer.tensors) == 2


@pytest.mark.parametrize("value", [object(), random.Random(0), np.array([object()]), {"a": [print]}, lambda: 0])
def test_what_is_neither_plain_nor_an_array_is_not_packed(value: Any) -> None:
    with pytest.raises(NotPlainError, match="value"):
        Packer().pack(value)


@pytest.mark.parametrize(
    "packed", [{"$": "array", "dtype": "O", "shape": [1], "at": "0"}, {"$": "code"}, {}, {"$": []}]
)
def test_what_no_packer_made_is_not_unpacked(packed: Any) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        unpack(packed, {"0": np.zeros(8, np.uint8)})


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_state_of_each_of_flowers_strategies_can_be_stored(name: str) -> None:
    StrategyState(STRATEGIES[name][0]())


def test_all_of_flowers_strategies_are_looked_at() -> None:
    theirs = {name for name in flowers.__all__ if inspect.isclass(getattr(flowers, name))}
    known = {type(make()).__name__ for make, _ in STRATEGIES.values()}
    assert {name for name in theirs - known if not name.startswith("FedXgb")} <= {"Strategy", "Result"}


class Remembering(FedAvg):
    """Keeps all kinds of things."""

    def __init__(self, **more: Any) -> None:
        super().__init__()
        self.best, self.where, self.log = 0.0, Path("."), logging.getLogger("x")
        self.momentum: Any = None
        self.fraction = 1.0
        self.optimizer = torch.optim.SGD([torch.zeros(2, requires_grad=True)], lr=0.5, momentum=0.9)
        vars(self).update(more)


def test_what_changed_is_restored_and_what_did_not_is_the_apps() -> None:
    before = Remembering(fraction=1.0)
    state, packer = StrategyState(before), Packer()
    before.best, before.momentum = 0.7, {"w": np.ones(3)}
    before.optimizer.param_groups[0]["lr"] = 0.25
    packed = state.pack(packer)
    assert set(packed) == {"best", "momentum", "optimizer"}
    after = Remembering(fraction=0.5)
    again = StrategyState(after)
    again.restore(packed, packer.tensors)
    assert (after.best, after.fraction, after.optimizer.param_groups[0]["lr"]) == (0.7, 0.5, 0.25)
    np.testing.assert_array_equal(after.momentum["w"], np.ones(3))
    assert set(again.pack(Packer())) == set(packed), "what was restored is stored again, also if it stays"


def test_an_array_that_changes_in_place_is_stored() -> None:
    strategy = Remembering(momentum=np.zeros(3))
    state = StrategyState(strategy)
    assert "momentum" not in state.pack(Packer())
    strategy.momentum += 1
    assert "momentum" in state.pack(Packer())


def test_a_strategy_inside_another_is_restored_too() -> None:
    def make() -> Any:
        return flowers.DifferentialPrivacyServerSideAdaptiveClipping(flowers.FedAdam(), 0.1, 2)

    before, after = make(), make()
    state, packer = StrategyState(before), Packer()
    before.clipping_norm, before.strategy.m_t = 0.25, {"w": np.ones(2)}
    StrategyState(after).restore(state.pack(packer), packer.tensors)
    assert after.clipping_norm == 0.25
    np.testing.assert_array_equal(after.strategy.m_t["w"], np.ones(2))


def test_what_can_not_be_stored_is_named_and_may_be_left_out() -> None:
    with pytest.raises(gf.InputError, match=r"chance, a random.Random.*stateless=\['chance'\]"):
        StrategyState(Remembering(chance=random.Random(0)))
    StrategyState(Remembering(chance=random.Random(0)), stateless=["chance"])


class Memory(defaultdict[str, int]):
    """A container of one's own would come back as another one."""


@pytest.mark.parametrize("value", [Memory(int), defaultdict(lambda: 7), np.ma.masked_array([1.0], [True])])
def test_a_container_that_would_come_back_as_another_one_is_refused(value: Any) -> None:
    with pytest.raises(NotPlainError):
        Packer().pack(value)


def restored(strategy: Any, state: StrategyState, other: Any) -> Any:
    packer = Packer()
    packed = state.pack(packer)
    StrategyState(other).restore(packed, packer.tensors)
    return other


class Slotted(FedAvg):
    """Keeps its count beside its `__dict__`, knows itself, and forgets that it is new."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        super().__init__()
        self.count, self.new = 0, True
        self.myself = self


def test_slots_are_attributes_and_so_is_one_that_is_gone_and_one_that_is_the_strategy() -> None:
    strategy = Slotted()
    state = StrategyState(strategy)
    strategy.count = 5
    del strategy.new
    other = restored(strategy, state, Slotted())
    assert other.count == 5
    assert not hasattr(other, "new")
    assert other.myself is other


class Private(FedAvg):
    """What only this class is meant to see has another name outside of it."""

    __slots__ = ("__velocity",)

    def move(self) -> None:
        self.__velocity = np.ones(2)

    @property
    def velocity(self) -> Any:
        return self.__velocity


def test_slots_that_are_private_to_a_class_are_restored() -> None:
    strategy, other, packer = Private(), Private(), Packer()
    state = StrategyState(strategy)
    strategy.move()
    packed = state.pack(packer)
    StrategyState(other).restore(packed, packer.tensors)
    np.testing.assert_array_equal(other.velocity, np.ones(2))


def test_an_attribute_whose_name_would_be_read_as_that_of_a_strategy_inside_is_named() -> None:
    strategy = FedAvg()
    setattr(strategy, "velocity.weight", 0.0)
    with pytest.raises(gf.InputError, match=r"rename 'velocity\.weight'"):
        StrategyState(strategy)


def test_a_list_that_holds_itself_is_named() -> None:
    strategy: Any = FedAvg()
    strategy.cycle = [1]
    strategy.cycle.append(strategy.cycle)
    with pytest.raises(gf.InputError, match="cycle, which holds itself"):
        StrategyState(strategy)


def test_what_is_made_later_and_could_not_be_loaded_is_named_when_it_is_first_stored() -> None:
    """After a restart there would be nothing to load the state into."""
    strategy: Any = FedAvg()
    strategy.optimiser = strategy.number = None
    state = StrategyState(strategy)
    strategy.optimiser = torch.optim.SGD([torch.zeros(2)], lr=0.1)
    with pytest.raises(gf.InputError, match="optimiser, a SGD, was made after the start"):
        state.pack(Packer())
    strategy.optimiser = None
    strategy.number = 1
    state.pack(Packer())
    strategy.number = object()
    with pytest.raises(gf.InputError, match=r"number, a builtins\.object"):
        state.pack(Packer())
