"""docs/own-method.md: what it says of its files, beside that its blocks and commands run (`test_snippets.py`)."""

import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gammafl as gf
from tests.conftest import vectors
from tests.flower.problem import run as run_flower
from tests.problems import Quadratic
from tests.test_snippets import ROOT, SNIPPETS, import_files

PAGE = "docs/own-method.md"

pytestmark = pytest.mark.usefixtures("registry_as_before")


@pytest.fixture(autouse=True)
def _files(in_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import_files(PAGE, monkeypatch)


def test_the_error_that_is_shown_is_the_one_that_is_raised(in_tmp: Path, capsys: pytest.CaptureFixture[str]) -> None:
    block = next(snippet.text for snippet in SNIPPETS if snippet.page == PAGE and "Forgetful" in snippet.text)
    exec(block, {"__name__": "__main__"})
    shown = " ".join((ROOT / PAGE).read_text().split())
    assert capsys.readouterr().out.strip() in shown


@pytest.mark.parametrize(
    ("file", "function"), [("own.py", "mine"), ("median.py", "median"), ("sampled.py", "sampled_top_k")]
)
def test_the_same_function_serves_server_and_clients_of_a_flower_app(in_tmp: Path, file: str, function: str) -> None:
    make = runpy.run_path(file)[function]
    chosen, _, _ = run_flower(
        in_tmp / "state", 3, Quadratic(), client={"methods": [make]}, method=make(keep=0.1), fraction_train=1.0
    )
    assert [len(record["clients"]) for record in chosen.history] == [4] * 3
    assert all(0 < record["kept"] < 4 * 50 / 2 for record in chosen.history)


def test_values_of_one_magnitude_are_one_bit_each(in_tmp: Path) -> None:
    median = runpy.run_path("median.py")["median"]
    assert median(keep=0.5)([1.0, -2.0, 3.0, 0.5, -5.0, 0.25]).values.tolist() == [-3.0, 3.0, -3.0]
    update = median(keep=0.1)(vectors(1, 10_000)[0])
    assert gf.encode(update) == gf.encode(update, values="ternary")
    assert len(median()(np.zeros(10))) == 0


def test_as_a_package_it_is_a_name_that_follows_its_leader(in_tmp: Path) -> None:
    """The page's pyproject.toml, installed by pip into a directory of its own."""
    (toml,) = (snippet.text for snippet in SNIPPETS if (snippet.page, snippet.kind) == (PAGE, "toml"))
    Path("pyproject.toml").write_text(toml)
    install = (
        "-m pip install -q --disable-pip-version-check --no-index --no-deps --no-build-isolation --target installed ."
    )
    subprocess.run([sys.executable, *install.split()], check=True)
    code = """if True:
        import sys
        sys.path.insert(0, sys.argv[1])
        import gammafl as gf
        from gammafl.methods.registry import OURS, entry_named, names
        from gammafl.experiments.compare import check_methods
        assert names() == [*OURS, "sampled-top-k"]
        assert gf.method_named("sampled-top-k:k=7").compressor.k == 7
        assert entry_named("sampled-top-k").label == "sampled Top-k"
        assert check_methods(["sampled-top-k"]) == ["gamma-fedht", "sampled-top-k"]
    """
    (in_tmp / "elsewhere").mkdir()
    subprocess.run([sys.executable, "-c", code, str(in_tmp / "installed")], check=True, cwd=in_tmp / "elsewhere")
