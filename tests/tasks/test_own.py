"""One's own task: the documentation's example runs as it is, and mistakes in such a file are named."""

import json
import re
import sys
from pathlib import Path

import pytest

from gammafl.methods.files import _module_name
from tests.test_cli import gammafl

DOCUMENT = (Path(__file__).parents[2] / "docs/own-task.md").read_text()
(EXAMPLE,) = re.findall(r"```python\n(.*?)```", DOCUMENT, flags=re.DOTALL)


def test_the_documentations_example_runs_by_name(in_tmp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (in_tmp / "mytask.py").write_text(EXAMPLE)
    code, _, err = gammafl("run", "mytask.py:build", "--method", "gamma-fedht", "--out", "r", capsys=capsys)
    assert code == 0, err
    summary = json.loads((in_tmp / "r/summary.json").read_text())
    assert (summary["clients"], summary["iterations"]) == (6, 1000)
    assert summary["final"] > 0.8
    again = gammafl("run", "--config", "r/config.toml", "--out", "again", capsys=capsys)
    assert again[0] == 0
    assert (in_tmp / "again/rounds.jsonl").read_bytes() == (in_tmp / "r/rounds.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("content", "name", "problem"),
    [
        ("", "nowhere.py:build", "there is no file"),
        ("x = 1", "mine.py:build", "no function of that name"),
        ("x = 1", "mine.py", "Give mine.py:FUNCTION"),
        ("x = (1", "mine.py:build", "mine.py, line 1: '(' was never closed"),
        ("import nowhere_to_be_found", "mine.py:build", "can't be imported"),
        (EXAMPLE.replace("batch_size=config.batch_size", "batch_size=0"), "mine.py:build", "batch_size must be"),
        ("def build(config): return 5", "mine.py:build", "must return a task"),
        (EXAMPLE.replace("config.clients", "4"), "mine.py:build", "4 clients, but 6 are asked for"),
        ("SETTINGS = {'iteratons': 5}", "mine.py:build", "did you mean 'iterations'"),
    ],
)
def test_a_mistake_in_the_file_is_named(
    content: str, name: str, problem: str, in_tmp: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (in_tmp / "mine.py").write_text(content)
    code, _, err = gammafl("run", name, "--set", "iterations=20", capsys=capsys)
    assert code == 2
    assert problem in err
    assert not (in_tmp / "runs").exists()


def test_data_for_a_task_that_brings_its_own_is_refused(in_tmp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (in_tmp / "mine.py").write_text(EXAMPLE)
    code, _, err = gammafl("run", "mine.py:build", "--data-dir", ".", capsys=capsys)
    assert (code, "brings its own data" in err) == (2, True)


def test_a_run_is_not_resumed_on_other_data(in_tmp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def write(spread: int) -> None:
        """The data depend on what stands beside the file."""
        (in_tmp / "spread.py").write_text(f"SPREAD = {spread}")
        sys.modules.pop(_module_name((in_tmp / "mytask.py").resolve()), None)
        sys.modules.pop("spread", None)

    own = EXAMPLE.replace("centres = 0.5 *", "centres = SPREAD *")
    assert own != EXAMPLE
    (in_tmp / "mytask.py").write_text(f"from spread import SPREAD\n{own}")
    write(2)
    run = ["run", "mytask.py:build", "--set", "iterations=20", "--out", "r"]
    assert gammafl(*run, capsys=capsys)[0] == 0
    (in_tmp / "r/summary.json").unlink()
    write(33)
    code, _, err = gammafl(*run, "--resume", capsys=capsys)
    assert (code, "began with other data" in err) == (2, True)
    write(2)
    assert gammafl(*run, "--resume", capsys=capsys)[0] == 0


def test_results_of_another_version_of_the_file_are_not_shown(in_tmp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (in_tmp / "mytask.py").write_text(EXAMPLE)
    options = ["mytask.py:build", "--set", "iterations=20", "--out"]
    for command in (["run", *options, "r", "--resume"], ["compare", *options, "c", "--methods", "ht", "--jobs", "1"]):
        assert gammafl(*[word for word in command if word != "--resume"], capsys=capsys)[0] == 0
        (in_tmp / "mytask.py").write_text(f"{(in_tmp / 'mytask.py').read_text()}\n# changed")
        code, _, err = gammafl(*command, capsys=capsys)
        assert (code, "mytask.py has changed since" in err) == (2, True)
