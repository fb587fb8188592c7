"""`python -m benchmarks` as a user meets it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import commands
from gammafl.cli.entry import call
from gammafl.experiments.pages import sections_of
from gammafl.paper.catalogue import STUDIES
from gammafl.paper.cost import COST

ROOT = Path(__file__).parents[2]


def benchmarks(command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """(exit code, all that is printed) of a command, run in this process."""
    monkeypatch.setattr(sys, "argv", ["benchmarks", *command.split()])
    with pytest.raises(SystemExit) as stop:
        call(commands.app, commands.PROGRAM)
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out + captured.err


@pytest.mark.parametrize(
    "command",
    [
        "compress",
        "wire",
        "context",
        "density",
        "methods",
        "simulate",
        "start",
        "gpt2",
        "parts",
        "growth",
        "scale",
        "cost",
        "hostile",
    ],
)
def test_help_shows_an_example(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, printed = benchmarks(f"{command} --help", capsys, monkeypatch)
    assert code == 0
    assert f"python -m benchmarks {command}" in printed[: printed.index("Options")]
    assert f"python -m benchmarks {command}" in printed[printed.index("Example") :]


def test_it_runs_as_a_module_in_a_clone() -> None:
    command = [sys.executable, "-m", "benchmarks", "compress", "--dims", "0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: --dims takes numbers of at least 1, got 0\n"


MISTAKES = {
    "command": ("simulat", "Did you mean 'simulate'?"),
    "threads": ("compress --threads 0", "--threads takes numbers of at least 1"),
    "fraction": ("density --kept 1%", "--kept takes numbers between 0 and 1, got '1%'"),
    "model": ("simulate --models alexnet", "no model 'alexnet'"),
    "level": ("cost --only d=7", "d has no level '7'"),
    "nothing to collect": ("cost --collect", "nothing of cost is finished"),
}


@pytest.mark.parametrize(("command", "expected"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named_and_the_exit_code_is_2(
    command: str, expected: str, in_tmp: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, printed = benchmarks(command, capsys, monkeypatch)
    assert code == 2
    assert expected in printed
    assert "Traceback" not in printed
    assert not list(in_tmp.iterdir())


def test_cost_measures_what_is_missing_judges_and_draws(
    in_tmp: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = "cost --quick --seeds 0 --only d=10000,100000 --out there"
    code, printed = benchmarks(command, capsys, monkeypatch)
    assert code == 0
    assert "cost: 2 runs, 0 finished" in printed
    path = in_tmp / "there/cost-quick"
    rows = [json.loads(line) for line in (path / "rows.jsonl").read_text().splitlines()]
    assert [(row["study"], row["d"]) for row in rows] == [("cost", "10000"), ("cost", "100000")]
    assert all(claim.sentence in (path / "tables.md").read_text() for claim in COST.claims)
    assert {"cost.png", "cost.svg", "report.html", "tables.md"} <= {p.name for p in path.iterdir()}
    code, printed = benchmarks(f"{command} --collect", capsys, monkeypatch)
    assert (code, "nothing to run" in printed) == (0, True)


def test_the_package_alone_draws_the_measured_times() -> None:
    [section] = sections_of([ROOT / "results/cost"], STUDIES)
    assert len(section.panels) == 1
    assert [claim.sentence for claim in section.claims] == [claim.sentence for claim in COST.claims]


def test_stopping_cost_tells_the_command_that_goes_on(
    in_tmp: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gammafl.experiments.runner.run_campaign", stop)
    (in_tmp / "there").mkdir()
    code, printed = benchmarks("cost --out there", capsys, monkeypatch)
    assert (code, printed) == (130, "stopped; go on with: python -m benchmarks cost --out there\n")
