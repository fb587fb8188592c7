"""gammafl state where Flower is not installed. With Flower: tests/flower."""

import pytest

from gammafl.cli import parsing
from gammafl.cli.exit_codes import ExitCode
from tests.test_cli import gammafl


@pytest.mark.parametrize("command", ["list", "clean --all"])
def test_without_flower_it_says_what_to_install(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parsing, "find_spec", lambda name: None)
    code, _, err = gammafl("state", *command.split(), capsys=capsys)
    assert code == ExitCode.REFUSED
    assert "pip install 'gammafl[flower]'" in err
