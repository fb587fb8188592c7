"""What a shell is offered, asked as bash asks."""

import pytest

from gammafl.methods.registry import names
from gammafl.paper.catalogue import STUDIES
from gammafl.tasks.data.catalogue import DATASETS
from gammafl.tasks.registry import PRESETS
from tests.test_cli import gammafl


def offered(line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("_GAMMAFL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    return gammafl(capsys=capsys)[1].split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("gammafl do", ["doctor"]),
        ("gammafl run logistic-m", [name for name in PRESETS if name.startswith("logistic-m")]),
        ("gammafl run --method gamma", [name for name in names() if name.startswith("gamma")]),
        ("gammafl compare --methods stc,gamma", [f"stc,{name}" for name in names() if name.startswith("gamma")]),
        ("gammafl study table", [name for name in STUDIES if name.startswith("table")]),
        ("gammafl data get ", list(DATASETS)),
    ],
)
def test_names_are_completed(
    line: str, expected: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert expected
    assert offered(line, capsys, monkeypatch) == expected
