"""The campaigns at a tiny size: they run, and they notice what they look for."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gammafl as gf
from gammafl.core.wire import MARK, POSITIONS, VALUES, WHOLE
from tests.campaigns import deployed_kill, fuzz, mutations, soak
from tests.campaigns.__main__ import CAMPAIGNS, PAGE, Campaign, last_line, row, run_all, with_rows
from tests.core.test_wire import VERSION_1

ROOT = Path(__file__).parents[2]
TINY = {name: campaign.command(name, is_tiny=True) for name, campaign in CAMPAIGNS.items()}
APPS = "-m tests.campaigns.apps --apps evaluate --keeps 0.1 --seeds 1 --rounds 6 --jobs 1 --out /dev/null"


@pytest.mark.parametrize("name", [*TINY, "apps"])
def test_a_campaign_runs_and_ends_with_its_count_and_verdict(name: str) -> None:
    command = TINY.get(name) or [sys.executable, *APPS.split()]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith(f"{name}: PASSED: ")


def test_the_page_has_a_row_for_each_campaign_and_a_new_one_takes_the_place_of_the_old() -> None:
    page = PAGE.read_text()
    assert all(re.search(rf"tests\.campaigns\.{name}[ `]", page) for name in CAMPAIGNS)
    changed = with_rows(page, {"soak": row("soak", "FAILED: it leaks", "2000-01-01")})
    assert "FAILED: it leaks (2000-01-01)" in changed
    assert len(changed.splitlines()) == len(page.splitlines())
    assert with_rows(page, {}) == page


def test_a_batch_is_a_function_of_its_seed_and_number() -> None:
    for number in range(len(mutations.TURNS)):
        assert mutations.batch(3, number, 50) == mutations.batch(3, number, 50)
        assert mutations.batch(3, number, 50) != mutations.batch(4, number, 50)


def test_valid_messages_of_every_pair_of_codings_are_mutated() -> None:
    kinds = {message[1] for message in mutations.corpus() if message[0] == MARK}
    assert kinds == {p | v << 4 | w for p in range(len(POSITIONS)) for v in range(len(VALUES)) for w in (0, WHOLE)}
    assert sum(message[0] != MARK for message in mutations.corpus()) == len(VERSION_1)


def test_a_decoder_that_raises_something_else_or_gives_something_else_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payload = gf.encode(gf.SparseUpdate(9, [1, 4], [1.5, 2.5]))
    assert fuzz.problem_with(payload) is None
    assert fuzz.problem_with(payload[:-1]) == ""

    def crashes(data: bytes) -> gf.SparseUpdate:
        raise ValueError("oh")

    monkeypatch.setattr(gf, "decode", crashes)
    assert fuzz.problem_with(payload) == "ValueError: oh"
    for wrong, problem in (
        (gf.SparseUpdate(9, [4, 1], [1.5, 2.5]), "out of order"),
        (gf.SparseUpdate(8, [1, 4], [1.5, 2.5]), "where the header says"),
        (gf.SparseUpdate(9, [1, 4], [1.5, np.inf]), "not finite"),
        (gf.SparseUpdate(9, [1, 4], [1.5, 2.0]), "other bytes"),
    ):
        monkeypatch.setattr(gf, "decode", lambda data, wrong=wrong: wrong)
        assert problem in str(fuzz.problem_with(payload))


def test_a_decoder_that_takes_too_much_memory_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    payload = gf.encode(gf.SparseUpdate(9, [1, 4], [1.5, 2.5]))
    assert fuzz.memory_problem(payload, fuzz.Findings()) is None
    decode = gf.decode
    monkeypatch.setattr(gf, "decode", lambda data: (np.zeros(10**6), decode(data))[1])
    assert "bytes taken" in str(fuzz.memory_problem(payload, fuzz.Findings()))


def test_serverapps_that_pile_up_are_ended_but_for_the_newest() -> None:
    apps = [subprocess.Popen(["sleep", "60"]) for _ in range(5)]
    try:
        pids = sorted((app.pid for app in apps), key=deployed_kill.started)
        deployed_kill.end_all_but_the_newest(pids[:3])
        assert [app.poll() for app in apps] == [None] * 5
        deployed_kill.end_all_but_the_newest(pids)
        newest = next(app for app in apps if app.pid == pids[-1])
        assert {app.wait(60) for app in apps if app is not newest} == {-signal.SIGKILL}
        assert newest.poll() is None
    finally:
        for app in apps:
            app.kill()
            app.wait()


def test_campaigns_that_wait_run_beside_the_others_and_each_line_says_whose_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of the two waits for the other: one after the other, they would not end."""
    program = f"""
import pathlib, sys, time
name, end = sys.argv[1], time.monotonic() + 60
print(name + ": 1 of 2")
print("  half")
pathlib.Path({str(tmp_path)!r}, name).touch()
while len(list(pathlib.Path({str(tmp_path)!r}).iterdir())) < 2 and time.monotonic() < end:
    time.sleep(0.01)
print(name + ": PASSED: all" if time.monotonic() < end else name + ": FAILED: alone")
"""
    monkeypatch.setattr(Campaign, "command", lambda self, name, is_tiny=False: [sys.executable, "-c", program, name])
    assert run_all(["kill", "deployed_kill"], True) == {"kill": "PASSED: all", "deployed_kill": "PASSED: all"}
    shown = capsys.readouterr().out.splitlines()
    for name in ("kill", "deployed_kill"):
        lines = [line for line in shown if line.startswith(f"{name}: ")]
        assert lines == [f"{name}: 1 of 2", f"{name}:   half", f"{name}: PASSED: all"]


@pytest.mark.parametrize(
    "program", ["print('soak: 3 of 9 rounds')", "print('soak: PASSED: all'); raise SystemExit(1)", "print('half')"]
)
def test_a_campaign_without_a_verdict_failed(program: str) -> None:
    assert last_line("soak", [sys.executable, "-c", program]).startswith("FAILED: ended with code ")


def test_a_leak_shows_in_the_slope_and_noise_does_not() -> None:
    rng, rounds = np.random.default_rng(0), np.arange(1, 401) * 250.0
    noise = 3e8 + 1e4 * rng.standard_normal(400)
    slope, half = soak.slope_with_interval(list(rounds), list(noise))
    assert abs(slope) < 2 * half
    slope, half = soak.slope_with_interval(list(rounds), list(noise + 50 * rounds))
    assert slope - half > 45
