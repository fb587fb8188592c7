"""The virtual clock follows from bytes and links alone, and changes nothing else of a run."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

import gammafl as gf
from gammafl.config.layers import make_config
from gammafl.config.link_trace import as_links, read_trace
from gammafl.config.schema import Faults
from gammafl.federated import rounds
from gammafl.federated.faults import carrier
from gammafl.federated.link import break_even, measured_compute, round_seconds, seconds_to, within
from gammafl.federated.plan import Plan
from gammafl.federated.records import RoundRecord
from gammafl.federated.residuals import ResidualStore
from gammafl.runs.execute import execute
from gammafl.tasks.registry import settings_of
from tests.problems import StoppedError, StoppingAt, blobs, plan_for, run

LINK = gf.Link.parse("1 Mbit/s up, 10 Mbit/s down, 50 ms, 0.5 s compute")
numbers = some.floats(1, 1e9)
times = some.floats(0, 1e3)
links = some.builds(gf.Link, numbers, numbers, times, times)
sizes = some.integers(0, 10**9)
METHOD = gf.gamma_fedht_q(initial_threshold=0.1)


# --- one link --------------------------------------------------------------------------------------------


@given(links)
def test_a_link_is_what_its_text_says(link: gf.Link) -> None:
    assert gf.Link.parse(str(link)) == link


@pytest.mark.parametrize(
    "text",
    [
        "1 Mbit/s up, 10 Mbit/s down, 50 ms",
        "50 ms, 10 Mbit/s down, 1 Mbit/s up",
        "1mbit up,10mbit down,50ms",
        "1000 kbit/s up, 0.01 Gbit/s down, 0.05 s latency",
        "125 kB/s up, 1.25 MB/s down, 50 ms, 0 s compute",
    ],
)
def test_the_same_link_may_be_written_in_several_ways(text: str) -> None:
    assert gf.Link.parse(text) == gf.Link(1e6, 1e7, 0.05)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "'' is neither a speed"),
        ("fast", "'fast' is neither a speed"),
        ("1 Mb/s", "neither a speed, such as 1 Mbit/s or 64 kB/s"),
        ("1 Mbit/s up", "does not give the speed down"),
        ("50 ms", "does not give the speed up"),
        ("1 Mbit/s, 2 Mbit/s up", "gives the speed up twice"),
        ("1 Mbit/s, 5 ms, 6 ms", "gives the latency twice"),
        ("1 Mbit/s, 5 ms up", "'5 ms up' is neither"),
        ("1 Mbit/s, -5 ms", "'-5 ms' is neither"),
        ("0 Mbit/s", "must be a number of at least 1, got 0.0"),
        ("1e999 bit/s", "must be a number of at least 1, got inf"),
        ("nowhere.csv", "can't read the links in nowhere.csv"),
    ],
)
def test_what_is_no_link_gets_one_line(text: str, what: str) -> None:
    with pytest.raises(gf.InputError, match=what) as error:
        as_links(text)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("value", [5, None, ["1 Mbit/s"]])
def test_a_link_is_a_text_or_a_link(value: Any) -> None:
    with pytest.raises(gf.InputError, match=r"link must be a text such as '1 Mbit/s up"):
        as_links(value)


@pytest.mark.parametrize("changed", [{"up_bits_per_second": "1"}, {"latency_seconds": -1}, {"compute_seconds": True}])
def test_a_link_of_other_things_than_numbers_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(gf.InputError, match=f"{next(iter(changed))} of a link must be a number"):
        replace(LINK, **changed)


# --- a round ---------------------------------------------------------------------------------------------


@given(links, sizes, sizes, sizes)
def test_more_bytes_never_take_less_time(link: gf.Link, down: int, up: int, more: int) -> None:
    assert link.seconds(down, up) <= min(link.seconds(down + more, up), link.seconds(down, up + more))


@given(links, some.dictionaries(some.integers(0, 20), some.tuples(sizes, sizes), min_size=1))
def test_a_round_lasts_as_long_as_its_slowest_client(link: gf.Link, sent: dict[int, tuple[int, int]]) -> None:
    down, up = ({client: pair[i] for client, pair in sent.items()} for i in (0, 1))
    assert round_seconds(link, 1, down, up) == max(link.seconds(*pair) for pair in sent.values())


def test_equal_clients_take_what_the_formula_says() -> None:
    down, up = 1_000_000, 10_000
    by_hand = 0.05 + 8 * down / 1e7 + 0.5 + 0.05 + 8 * up / 1e6
    assert round_seconds(LINK, 1, {0: down, 1: down}, {0: up, 1: up}) == pytest.approx(by_hand)


def test_who_made_no_upload_is_waited_for_and_who_was_not_reached_is_not() -> None:
    assert round_seconds(LINK, 1, {0: 1000}, {}) == LINK.seconds(1000, 0)
    assert round_seconds(LINK, 1, {}, {}) == 0


# --- traces ----------------------------------------------------------------------------------------------

CSV = """client, up, down, latency, compute, round
0, 1 Mbit/s, 10 Mbit/s, 50 ms, ,
1, 64 kbit/s, 1 Mbit/s, , 2 s, 1
1, 8 Mbit/s, 8 Mbit/s, , , 3
"""


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


JSON = lines(
    {"client": 1, "round": 3, "up": "8 Mbit/s", "down": "8 Mbit/s"},
    {"client": 0, "up": "1 Mbit/s", "down": "10 Mbit/s", "latency": "50 ms"},
    {"client": 1, "up": "64 kbit/s", "down": "1 Mbit/s", "compute": "2 s"},
)


def written(directory: Path, name: str, text: str) -> Path:
    path = directory / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(("name", "text"), [("links.csv", CSV), ("links.jsonl", JSON)])
def test_a_trace_gives_each_client_its_own_link_from_some_round_on(tmp_path: Path, name: str, text: str) -> None:
    trace = read_trace(written(tmp_path, name, text))
    assert [trace.of(0, t) for t in (1, 2, 100)] == 3 * [gf.Link(1e6, 1e7, 0.05)]
    assert [trace.of(1, t) for t in (1, 2)] == 2 * [gf.Link(64e3, 1e6, 0, 2)]
    assert [trace.of(1, t) for t in (3, 100)] == 2 * [gf.Link(8e6, 8e6)]


def test_of_uneven_clients_the_slowest_decides(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, "links.csv", CSV))
    same = {0: 10_000, 1: 10_000}
    assert round_seconds(trace, 1, same, same) == trace.of(1, 1).seconds(10_000, 10_000)
    assert round_seconds(trace, 3, same, same) == trace.of(0, 3).seconds(10_000, 10_000)
    assert round_seconds(trace, 1, {0: 10_000}, same) == trace.of(0, 1).seconds(10_000, 10_000)


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("a.csv", "", "has no links; its columns are client, up, down"),
        ("a.csv", "client,up\n0,1 Mbit/s\n", "line 2: down is missing"),
        ("a.csv", "client,up,down,speed\n0,1 Mbit/s,1 Mbit/s,9\n", "line 2: there is no column 'speed'"),
        ("a.csv", "client,up,down\n0,1 Mbit/s,1 Mbit/s,9\n", "line 2: it has more values than there are columns"),
        ("a.csv", "client,up,down\n0,1000,1 Mbit/s\n", "line 2: up must be a speed such as 1 Mbit/s, got '1000'"),
        ("a.csv", "client,up,down\n-1,1 Mbit/s,1 Mbit/s\n", "client must be a whole number of at least 0"),
        ("a.csv", "client,up,down,round\n0,1mbit,1mbit,0\n", "round must be a whole number of at least 1"),
        ("a.csv", "client,up,down,round\n0,1mbit,1mbit,5\n", "client 0 has no link before round 5"),
        (
            "a.csv",
            "client,up,down\n0,1mbit,1mbit\n0,1mbit,1mbit\n",
            "line 3: client 0 has a link from round 1 on already",
        ),
        ("a.csv", "client,up,down\n0,0 bit/s,1mbit\n", "line 2: up_bits_per_second of a link must be"),
        ("a.csv", 'client,up,down\n0,"1mbit,1mbit\n', "is not CSV: unexpected end of data"),
        ("a.jsonl", "[]\n", "line 1 is not a JSON object"),
        ("a.jsonl", "\n{\n", "line 2 is not JSON: "),
        ("a.jsonl", lines({"client": 0, "up": 5, "down": "1mbit"}), "up must be a speed such as 1 Mbit/s, got 5"),
        ("a.jsonl", lines({"client": True, "up": "1mbit", "down": "1mbit"}), "client must be a whole number"),
    ],
)
def test_what_is_wrong_with_a_trace_is_said_in_one_line(tmp_path: Path, name: str, text: str, what: str) -> None:
    with pytest.raises(gf.InputError, match=what) as error:
        read_trace(written(tmp_path, name, text))
    assert "\n" not in str(error.value)


def test_a_client_without_a_link_is_named_before_the_run_begins(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, "links.csv", CSV))
    with pytest.raises(gf.InputError, match=r"links.csv has no link for client 2 of 0 to 3; add its line"):
        plan_for(METHOD, link=trace)


# --- a run -----------------------------------------------------------------------------------------------


def records_of(plan: Plan) -> list[RoundRecord]:
    state, residuals = rounds.start(plan), ResidualStore(plan.method, plan.dim)
    return list(rounds.run_rounds(plan, state, carrier(plan, residuals)))


FAULTS = {
    "none": Faults(),
    "all": Faults(
        absent=0.1, killed=0.1, lost=0.1, late=0.1, repeated=0.1, corrupted=0.1, not_finite=0.1, forgetful=0.1
    ),
}


@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("downlink", ["full", "changes", METHOD], ids=["full", "changes", "compressed"])
def test_a_link_changes_no_other_field_of_any_record(faults: Faults, downlink: Any) -> None:
    plan = plan_for(METHOD, faults=faults, downlink=downlink)
    without, linked = records_of(plan), records_of(replace(plan, link=LINK))
    assert all("link_seconds" not in record.table() for record in without)
    assert [record.model_copy(update={"link_seconds": None}) for record in linked] == without
    seconds = np.array([record.link_seconds for record in linked])
    assert (np.diff(seconds, prepend=0) >= 0).all()


def test_the_clock_is_the_sum_over_rounds_of_what_the_messages_take() -> None:
    """With one client a round, the record has its bytes."""
    _, _, records = run(plan_for(METHOD, participants=1, link=LINK))
    by_hand = np.cumsum([LINK.seconds(record.downlink_bytes, record.uplink_bytes) for record in records])
    assert np.allclose(np.array([record.link_seconds for record in records], float), by_hand)


def test_an_upload_that_is_lost_takes_the_time_that_it_would_have_taken() -> None:
    """In the first round nothing is lost yet, so that the clients make the same uploads."""
    plan = plan_for(METHOD, link=LINK, participants=3)
    safe, lossy = (records_of(replace(plan, faults=Faults(lost=lost)))[0] for lost in (0.0, 0.9))
    assert lossy.missing > safe.missing
    assert lossy.link_seconds == safe.link_seconds
    absent = records_of(replace(plan, faults=Faults(absent=1.0)))
    assert {record.link_seconds for record in absent} == {0.0}


def test_a_run_that_was_stopped_and_resumed_has_the_same_clock(tmp_path: Path) -> None:
    changes = {"iterations": 60, "method": "gamma-fedht-q", "link": str(LINK), "checkpoint": {"every_seconds": 0}}
    config = make_config(settings_of("logistic-mini"), {"task": "logistic-mini", **changes})
    whole = execute(config, tmp_path / "whole")
    with pytest.raises(StoppedError):
        execute(config, tmp_path / "stopped", progress=StoppingAt(7))
    resumed = execute(config, tmp_path / "stopped", resume=True)
    ledgers = [(tmp_path / name / "rounds.jsonl").read_bytes() for name in ("whole", "stopped")]
    assert ledgers[0] == ledgers[1]
    assert resumed.link_seconds == whole.link_seconds == json.loads(ledgers[0].splitlines()[-1])["link_seconds"]


def test_without_a_link_no_file_speaks_of_one(tmp_path: Path) -> None:
    config = make_config(settings_of("logistic-mini"), {"task": "logistic-mini", "iterations": 10})
    execute(config, tmp_path / "run")
    for path in (tmp_path / "run").rglob("*"):
        assert not path.is_file() or b"link" not in path.read_bytes().replace(b"uplink", b"").replace(b"downlink", b"")


def test_the_configuration_keeps_one_text_for_a_link_however_it_was_written() -> None:
    texts = ("1mbit", "1 Mbit/s up, 1000 kbit/s down")
    configs = [make_config(settings_of("logistic-mini"), {"task": "logistic-mini", "link": text}) for text in texts]
    assert configs[0] == configs[1]
    with pytest.raises(gf.InputError, match="'fast' is neither a speed") as error:
        make_config(settings_of("logistic-mini"), {"task": "logistic-mini", "link": "fast"})
    assert "\n" not in str(error.value)


def test_a_trace_that_has_changed_is_another_run(tmp_path: Path) -> None:
    rows = "".join(f"{client},1 Mbit/s,2 Mbit/s\n" for client in range(10))
    path = written(tmp_path, "links.csv", "client,up,down\n" + rows)
    changes = {"iterations": 10, "link": str(path)}
    config = make_config(settings_of("logistic-mini"), {"task": "logistic-mini", **changes})
    execute(config, tmp_path / "run")
    assert execute(config, tmp_path / "run", resume=True).link_seconds
    written(tmp_path, "links.csv", "client,up,down\n" + rows.replace("2 Mbit/s", "3 Mbit/s"))
    with pytest.raises(gf.InputError, match=r"links.csv has changed since the run in .* began"):
        execute(config, tmp_path / "run", resume=True)


def test_simulate_takes_a_link_and_a_run_of_another_link_is_another_run(tmp_path: Path) -> None:
    data, test = blobs()
    call: dict[str, Any] = {"stepsize": 0.1, "iterations": 20, "out": tmp_path / "run"}

    def simulated(link: Any) -> gf.Summary:
        import torch

        torch.manual_seed(0)
        return gf.simulate(torch.nn.Linear(8, 3), data, test, link=link, **call).summary

    first = simulated(LINK)
    assert first.link_seconds
    assert simulated(str(LINK)) == first
    with pytest.raises(gf.InputError, match=r"link = .* there"):
        simulated("1 Mbit/s")


# --- what is made of it ----------------------------------------------------------------------------------


def test_the_first_evaluation_that_reaches_the_target_counts() -> None:
    curve = [(1.0, 0.2), (3.0, 0.6), (4.0, 0.4), (5.0, 0.9)]
    assert [seconds_to(curve, target) for target in (0.1, 0.2, 0.5, 0.6, 0.7, 0.95)] == [1, 1, 3, 3, 5, None]
    assert [seconds_to(curve, target, higher_is_better=False) for target in (0.5, 0.2, 0.1)] == [1, 1, None]


@given(some.floats(-1e6, 1e6), some.booleans())
def test_a_run_reaches_a_target_within_one_per_cent_of_its_own_metric(reached: float, higher: bool) -> None:
    assert seconds_to([(1.0, reached)], within(reached, higher), higher) == 1.0


@given(some.floats(1, 1e9), some.floats(1e-6, 1e3))
def test_at_the_break_even_speed_compression_costs_what_it_saves(saved: float, extra: float) -> None:
    speed = break_even(saved, extra)
    assert 8 * saved / speed == pytest.approx(extra)
    assert break_even(saved, 0) == np.inf


def test_measured_compute_is_a_mean_over_clients_and_rounds() -> None:
    import torch

    data, test = blobs()
    summary = gf.simulate(torch.nn.Linear(8, 3), data, test, stepsize=0.1, iterations=20).summary
    each = measured_compute(summary)
    spent = summary.training_seconds + summary.compression_seconds
    assert each * summary.rounds * summary.participants == pytest.approx(spent)
