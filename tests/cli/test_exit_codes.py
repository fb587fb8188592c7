"""Exit codes: the documented ones, and no others."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gammafl.cli.exit_codes import ExitCode
from tests.test_cli import gammafl

PAGE = Path(__file__).parents[2] / "docs/exit-codes.md"


def test_the_page_has_a_row_for_each_code() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert {name: int(number) for number, name in rows} == {code.name: code.value for code in ExitCode}


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("--version", ExitCode.DONE),
        ("run --no-such-option", ExitCode.REFUSED),
        ("tasks no-such-task", ExitCode.REFUSED),
        ("data get no-such-data", ExitCode.REFUSED),
    ],
)
def test_a_command_ends_with_the_code_of_what_happened(
    command: str, expected: ExitCode, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gammafl(*command.split(), capsys=capsys)[0] == expected


def test_whoever_presses_ctrl_c_in_any_command_gets_130(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gammafl.tasks.data.catalogue.dataset_named", stop)
    assert gammafl("data", "get", "cifar10", capsys=capsys)[0] == ExitCode.STOPPED


DIVERGES = ["--set", "iterations=20", "--set", "stepsize.kind=constant", "--set", "stepsize.value=1e38"]
LOUD = """
import numpy as np
import gammafl as gf

class Loud(gf.Compressor):
    def take(self, vector, moment):
        indices = np.flatnonzero(np.abs(vector) < 1)[:100]
        values = vector[indices] * np.float32(1e37)
        vector[indices] -= values
        return gf.SparseUpdate(vector.size, indices, values)

def loud():
    return gf.Method(Loud())
"""


@pytest.mark.parametrize("command", ["run", "compare --methods fedavg --jobs 1"])
def test_a_command_whose_only_run_diverges_says_so_in_one_line(
    command: str, in_tmp: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *options = command.split()
    code, _, err = gammafl(name, "logistic-mini", *options, *DIVERGES, capsys=capsys)
    assert code == ExitCode.DIVERGED
    assert re.search(r"^error: .*not finite.*smaller stepsize", err, re.MULTILINE)


def test_compare_shows_the_other_methods_where_one_diverges(in_tmp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (in_tmp / "own.py").write_text(LOUD)
    options = ["--methods", "own.py:loud,gamma-fedht", "--set", "iterations=20", "--jobs", "1", "--out", "c"]
    code, out, err = gammafl("compare", "logistic-mini", *options, capsys=capsys)
    assert code == ExitCode.DIVERGED
    assert "γ-FedHT" in out
    assert "1 run(s) diverged: logistic-mini-own.py-loud" in err
    assert "not finite" in (in_tmp / "c/tables.md").read_text("utf-8")


def test_the_package_runs_as_a_module() -> None:
    said = subprocess.run([sys.executable, "-m", "gammafl", "--version"], capture_output=True, text=True, check=True)
    assert said.stdout.startswith("gammafl ")
