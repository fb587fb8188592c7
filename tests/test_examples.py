"""The examples run, and links between documents lead somewhere; the documentation's snippets: `test_snippets.py`."""

import re
import runpy
from pathlib import Path

import pytest

from gammafl.config.layers import make_config
from gammafl.tasks.registry import PRESETS

ROOT = Path(__file__).parents[1]


def test_the_library_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples/library.py"), run_name="__main__")
    out = capsys.readouterr().out
    assert out.count("entries in") == 5
    assert "less than dense" in out


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_complete_configuration(name: str) -> None:
    config = make_config(PRESETS[name].settings, {"task": name})
    assert config.rounds * config.local_steps == config.iterations


DOCUMENTS = [*sorted((ROOT / "docs").glob("**/*.md")), ROOT / "README.md"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", document.read_text()):
        assert (document.parent / target).exists(), target
