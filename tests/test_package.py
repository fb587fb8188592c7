"""What is published: the source distribution, the wheel and their page, with the version of `gammafl.__version__`."""

import email
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

import gammafl
from tools.dist import ENTRANCES, NONE

ROOT = Path(__file__).parents[1]
PICTURES = {".png", ".svg"}
VERSION = "98.7.6"
BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository with another `__version__`, its source distribution, and the wheel made from that."""
    folder = tmp_path_factory.mktemp("built")
    unwanted = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info")
    made = {"build", "dist", "runs"}  # beside the source
    shutil.copytree(
        ROOT, folder / "copy", ignore=lambda at, names: unwanted(at, names) | (made if Path(at) == ROOT else set())
    )
    init = folder / "copy/src/gammafl/__init__.py"
    init.write_text(init.read_text().replace(f'__version__ = "{gammafl.__version__}"', f'__version__ = "{VERSION}"'))
    _build("build_sdist", folder / "copy", folder)
    with tarfile.open(folder / f"gammafl-{VERSION}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    _build("build_wheel", folder / f"gammafl-{VERSION}", folder)
    shutil.unpack_archive(folder / f"gammafl-{VERSION}-py3-none-any.whl", folder / "wheel", "zip")
    return folder


def _build(what: str, source: Path, out: Path) -> None:
    done = subprocess.run([sys.executable, "-c", BUILD, what, str(out)], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_source_distribution_has_the_repository_without_the_pictures_of_results(built: Path) -> None:
    copy, unpacked = built / "copy", built / f"gammafl-{VERSION}"
    rooms = ("benchmarks", "docs", "examples", "results", "src", "tests", "tools")
    wanted = {path.relative_to(copy) for room in rooms for path in (copy / room).rglob("*") if path.is_file()}
    wanted |= {Path(name) for name in ("CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md")}
    wanted |= {Path(name) for name in ("CITATION.cff", "CODE_OF_CONDUCT.md", "SECURITY.md")}
    wanted |= {Path(name) for name in ("constraints.txt", "pyproject.toml", "requirements.lock", "setup.py")}
    left_out = {path for path in wanted if path.parts[0] == "results" and path.suffix in PICTURES}
    there = {path.relative_to(unpacked) for path in unpacked.rglob("*") if path.is_file()}
    assert wanted - there == left_out
    assert len(wanted) > 200


def test_the_wheel_has_the_package_and_nothing_else_such_as_benchmarks(built: Path) -> None:
    with zipfile.ZipFile(built / f"gammafl-{VERSION}-py3-none-any.whl") as wheel:
        names = [Path(name) for name in wheel.namelist()]
    assert {name.parts[0] for name in names} == {"gammafl", f"gammafl-{VERSION}.dist-info"}
    assert not [name for name in names if "bench" in str(name)]
    package = ROOT / "src/gammafl"
    wanted = {path.relative_to(package.parent) for path in package.rglob("*") if path.is_file()}
    kept = {path for path in wanted if "__pycache__" not in path.parts}
    assert kept <= set(names)


def test_the_command_and_the_distributions_have_the_version_that_is_written_in_one_place(built: Path) -> None:
    for option in ("--version", "-V"):
        command = [sys.executable, "-m", "gammafl.cli.main", option]
        done = subprocess.run(command, cwd=built / "wheel", capture_output=True, text=True, env={"PYTHONPATH": "."})
        assert (done.returncode, done.stdout, done.stderr) == (0, f"gammafl {VERSION}\n", "")
    files = (ROOT / "pyproject.toml", *(ROOT / "src").rglob("*.py"))
    written = [path.name for path in files if f'"{gammafl.__version__}"' in path.read_text("utf-8")]
    assert written == ["__init__.py"]


def _links(text: str) -> Iterator[str]:
    def walk(tokens: list[Token]) -> Iterator[str]:
        for token in tokens:
            yield from (str(token.attrs[key]) for key in ("href", "src") if key in token.attrs)
            yield from walk(token.children or [])

    return walk(MarkdownIt().parse(text))


def test_the_page_on_a_package_index_is_the_readme_with_no_link_that_leads_nowhere(built: Path) -> None:
    metadata = (built / f"wheel/gammafl-{VERSION}.dist-info/METADATA").read_text("utf-8")
    page = metadata.partition("\n\n")[2]
    headers = email.message_from_string(metadata)
    assert headers["Author"]
    assert headers["Description-Content-Type"] == "text/markdown"
    here, there = list(_links((ROOT / "README.md").read_text("utf-8"))), list(_links(page))
    assert there == [link for link in here if link.startswith("https://")]
    for link in set(here) - set(there):
        assert f"`{link}`" in page
        assert (built / f"gammafl-{VERSION}" / link).exists()


def test_the_wheel_works_where_no_extra_is_installed(built: Path) -> None:
    """`make dist` installs it so, and with extras."""
    extras = ("altair", "flwr", "jinja2", "PIL", "scipy", "torch", "transformers", "vl_convert")
    missing = f"import sys; sys.modules.update(dict.fromkeys({extras}))"
    done = subprocess.run(
        [sys.executable, "-c", f"{missing}\n{ENTRANCES[NONE]}\nprint(gf.__file__)"],
        cwd=built / "wheel", capture_output=True, text=True, env={"PYTHONPATH": "."},
    )  # fmt: skip
    assert done.stdout == f"{built / 'wheel/gammafl/__init__.py'}\n", done.stderr


WITHOUT_FLOWER = """
import sys
sys.modules["flwr"] = None  # as where it is not installed
from gammafl import *
import gammafl
try:
    gammafl.flower
except ImportError as error:
    print(error)
"""


def test_flower_is_loaded_when_it_is_first_used() -> None:
    code = "import sys, gammafl as gf; print('flwr' in sys.modules, callable(gf.flower.compress), 'flower' in dir(gf))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False True True\n", done.stderr


def test_without_flower_the_error_names_the_extra() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_FLOWER], capture_output=True, text=True)
    assert done.stdout == "gammafl.flower needs Flower: pip install 'gammafl[flower]'\n", done.stderr
