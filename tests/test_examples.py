"""What the documentation shows runs as it is shown."""

import re
import runpy
from pathlib import Path

import numpy as np
import pytest
from flwr.clientapp import ClientApp
from torch import nn

import gammafl as gf
import gammafl.flower
from gammafl.config import make_config
from gammafl.tasks.presets import PRESETS
from tests.problems import blobs

ROOT = Path(__file__).parents[1]


def test_the_library_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples/library.py"), run_name="__main__")
    out = capsys.readouterr().out
    assert out.count("entries in") == 5
    assert "less than dense" in out


def test_the_readmes_examples_run() -> None:
    text = (ROOT / "README.md").read_text()
    compressor, simulator, flower = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    clients, test = blobs()
    delta = np.random.default_rng(0).standard_normal(235_690).astype(np.float32)
    names = {"delta": delta, "t": 5, "gf": gf, "model": nn.Linear(8, 3), "client_datasets": clients}
    exec(compressor, names | {"test_dataset": test})
    exec(simulator, names | {"test_dataset": test})
    exec(flower, names | {"gammafl": gammafl, "ClientApp": ClientApp})


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_complete_configuration(name: str) -> None:
    config = make_config(PRESETS[name].settings, {"task": name})
    assert config.rounds * config.local_steps == config.iterations


@pytest.mark.parametrize("document", [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"], ids=lambda p: p.name)
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", document.read_text()):
        assert (document.parent / target).exists(), target
