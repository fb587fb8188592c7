"""Exit codes: the documented ones, and no others."""

import re
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
