"""Who trains when: every step once, in order, and no thread idle for longer than need be."""

import heapq
from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from gammafl.tasks.fast.turns import Turn, turns

sizes = st.tuples(st.integers(0, 40), st.integers(1, 12), st.integers(1, 9))


def timetable(order: list[Turn], threads: int) -> list[tuple[Turn, int]]:
    """When each turn begins if a step takes one unit of time, and whoever is free takes the next turn."""
    free, begins = [0] * threads, []
    for turn in order:
        begins.append((turn, heapq.heappop(free)))
        heapq.heappush(free, begins[-1][1] + len(turn.steps))
    return begins


def length(order: list[Turn], threads: int) -> int:
    return max((begin + len(turn.steps) for turn, begin in timetable(order, threads)), default=0)


@given(sizes)
def test_each_client_makes_each_step_once_and_in_order(size: tuple[int, int, int]) -> None:
    clients, steps, _ = size
    order = turns(*size)
    for client in range(clients):
        made = chain.from_iterable(turn.steps for turn in order if turn.client == client)
        assert list(made) == list(range(steps))
    assert {turn.client for turn in order} == set(range(clients))


@given(sizes)
def test_a_second_turn_never_waits_for_the_first(size: tuple[int, int, int]) -> None:
    _, _, threads = size
    ends: dict[int, int] = {}
    for turn, begin in timetable(turns(*size), threads):
        assert ends.get(turn.client, 0) <= begin
        ends[turn.client] = begin + len(turn.steps)


@given(sizes)
def test_no_round_takes_longer_than_with_whole_clients(size: tuple[int, int, int]) -> None:
    clients, steps, threads = size
    assert length(turns(*size), threads) <= -(-clients // threads) * steps


@given(st.integers(1, 20), st.integers(1, 12))
def test_two_threads_share_an_odd_number_of_clients_to_the_step(pairs: int, steps: int) -> None:
    """Half of all steps each; with an odd number of steps, one more."""
    clients = 2 * pairs + 1
    assert length(turns(clients, steps, 2), 2) <= -(-clients * steps // 2) + (steps == 1)


@given(sizes)
def test_only_the_last_clients_train_in_two_turns(size: tuple[int, int, int]) -> None:
    """The others are handed over in their order, each before a copy of the module is needed for the next."""
    clients, steps, threads = size
    order = turns(*size)
    whole = [turn.client for turn in order if len(turn.steps) == steps]
    assert whole == list(range(len(whole)))
    assert clients - len(whole) <= threads // 2
