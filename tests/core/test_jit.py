"""Compiled code is kept on disk where it can be; whatever happens to it there costs time, and one line, but no call."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import gammafl

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "emptied": lambda content: b"",
    "first_byte_left": lambda content: content[:1],
    "third_left": lambda content: content[: len(content) // 3],
    "last_byte_lost": lambda content: content[:-1],
    "zeroed": lambda content: bytes(len(content)),
    "another_text": lambda content: b"this is not what it should be\n" * 40,
    "noise": lambda content: bytes((7 * i * i + 31 * i) % 251 for i in range(len(content))),
}
SOURCE = "from gammafl.core.jit import compiled\n" + "".join(
    f"\n@compiled\ndef {name}(x):\n    return x + {i}\n" for i, name in enumerate(DAMAGES)
)
USE = f"""
import loops
functions = [getattr(loops, name) for name in {list(DAMAGES)}]
print(*[function(1) for function in functions], functions[0](0.5))
print(sum(function.stats.cache_misses.total() for function in functions), "compiled")
"""
RIGHT = "1 2 3 4 5 6 7 0.5\n"
ALL, NOTHING = RIGHT + "8 compiled\n", RIGHT + "0 compiled\n"


class Place:
    """A module with a compiled function for each kind of damage, one with two signatures, and where they are kept."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.source, self.cache = folder / "loops.py", cache

    def start(self, first: str = "") -> subprocess.Popen[str]:
        package = Path(gammafl.__file__).parents[1]
        places = {"PYTHONPATH": f"{package}:{self.source.parent}", "NUMBA_CACHE_DIR": str(self.cache)}
        environment = {**os.environ, **places, "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-c", first + USE]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def used(self, first: str = "") -> tuple[str, str]:
        """What one start prints on both channels; `first` runs before."""
        return self.start(first).communicate()

    def kept(self, suffix: str) -> list[Path]:
        return sorted(self.cache.rglob(f"*.{suffix}"))

    def said_once(self, said: str) -> bool:
        return said.count("\n") == 1 and said.startswith("gammafl: ") and str(self.cache) in said


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("warm")
    place = Place(folder, folder / "cache")
    place.source.write_text(SOURCE)
    assert place.used() == (ALL, "")
    assert (len(place.kept("nbi")), len(place.kept("nbc"))) == (7, 8)
    return place


@pytest.fixture
def place(warm: Place, tmp_path: Path) -> Place:
    """A cache of one's own that holds everything."""
    return Place(warm.source.parent, shutil.copytree(warm.cache, tmp_path / "cache"))


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
def test_damaged_files_are_named_in_one_line_and_replaced(place: Place, suffix: str) -> None:
    for file in place.kept(suffix):
        damage = next(damage for name, damage in DAMAGES.items() if name in file.name)
        file.write_bytes(damage(file.read_bytes()))
    printed, said = place.used()
    assert printed == ALL, said
    assert place.said_once(said), said
    assert place.used() == (NOTHING, "")


def test_code_with_a_changed_byte_does_not_run(place: Place) -> None:
    """A pickle holds such code as well as any other; the processor would run it."""
    for file in place.kept("nbc"):
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 255
        file.write_bytes(content)
    printed, said = place.used()
    assert printed == ALL, said
    assert place.said_once(said), said


def test_what_can_not_be_read_or_replaced_is_left_and_compiled(place: Place) -> None:
    for file in place.kept("nbi"):
        file.unlink()
        (file / "occupied").mkdir(parents=True)
    printed, said = place.used()
    assert printed == ALL, said
    assert place.said_once(said), said


@pytest.mark.parametrize("limit", [0, 1000])
def test_a_full_disk_costs_the_keeping_only(warm: Place, tmp_path: Path, limit: int) -> None:
    """With 1,000 bytes there is room for the index, not for the code."""
    place = Place(warm.source.parent, tmp_path / "cache")
    full = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
    printed, said = place.used(first=full)
    assert printed == ALL, said
    assert place.said_once(said), said
    assert "File too large" in said
    assert place.used() == (ALL, "")
    assert place.used() == (NOTHING, "")


def test_a_directory_that_goes_while_the_process_runs_costs_the_keeping_only(place: Place) -> None:
    gone = f"import loops, shutil; shutil.rmtree({str(place.cache)!r}); open({str(place.cache)!r}, 'w').close()\n"
    printed, said = place.used(first=gone)
    assert printed == ALL, said
    assert place.said_once(said), said


def test_processes_that_start_together_on_damaged_files_are_all_right(place: Place) -> None:
    for file in [*place.kept("nbi"), *place.kept("nbc")]:
        file.write_bytes(file.read_bytes()[:-1])
    for process in [place.start() for _ in range(4)]:
        printed, said = process.communicate()
        assert printed.startswith(RIGHT), said
        assert said.count("\n") <= 1, said
    assert place.used() == (NOTHING, "")


def test_the_code_of_another_signature_is_not_taken(place: Place) -> None:
    """Two processes that each add a signature may both call its file the first."""
    one, other = (file for file in place.kept("nbc") if "emptied" in file.name)
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    assert place.used() == (RIGHT + "2 compiled\n", "")


def test_the_code_of_an_older_source_is_not_taken(tmp_path: Path) -> None:
    """A process with the new source writes its index first: another one may find the old code behind it."""
    place = Place(tmp_path, tmp_path / "cache")
    place.source.write_text(SOURCE)
    assert place.used() == (ALL, "")
    old = {file: file.read_bytes() for file in place.kept("nbc")}
    place.source.write_text(SOURCE.replace("x + 6", "x + 9"))
    right = ALL.replace("7", "10"), ""
    assert place.used() == right
    for file, content in old.items():
        file.write_bytes(content)
    assert place.used() == right


def test_without_any_writable_cache_the_loops_compile_all_the_same(tmp_path: Path) -> None:
    """A file stands where each cache directory would be, which stops even root from writing there."""
    package = tmp_path / "gammafl"
    shutil.copytree(Path(gammafl.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__", "*.npz"))
    (package / "core/__pycache__").write_text("not a directory")
    (tmp_path / "home").write_text("not a directory")
    places = {name: str(tmp_path / "home/x") for name in ("HOME", "XDG_CACHE_HOME", "IPYTHONDIR")}
    environment = {**os.environ, **places, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    use = "import gammafl as gf, numpy as np; print(len(gf.TopK(3)(np.arange(9, dtype=np.float32))))"
    done = subprocess.run([sys.executable, "-c", use], env=environment, capture_output=True, text=True)
    assert done.stdout == "3\n", done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert f"{package}/core/__pycache__" in done.stderr
    assert "NUMBA_CACHE_DIR" in done.stderr


def test_code_is_compiled_again_when_a_module_changes_that_is_part_of_it(tmp_path: Path) -> None:
    """As for what numba's own cache does not look at: intrinsics of another file."""
    parts = tmp_path / "parts.py"
    source = "import parts\nfrom gammafl.core.jit import compiled_with\nNUMBER = parts.NUMBER\n"
    (tmp_path / "loops.py").write_text(source + "\n@compiled_with(parts)\ndef add(x):\n    return x + NUMBER\n")
    package = str(Path(gammafl.__file__).parents[1])
    places = {"PYTHONPATH": f"{package}:{tmp_path}", "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", "import loops; print(loops.add(1), loops.add.stats.cache_hits.total())"]
    printed, said = [], []
    for text in ("NUMBER = 1", "NUMBER = 1", "NUMBER = 2", "NUMBER = 2"):
        parts.write_text(text + "\n")
        environment = {**os.environ, **places, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        printed.append(done.stdout)
        said.append(done.stderr.count("gammafl: loops are compiled for this processor"))
    assert printed == ["2 0\n", "2 1\n", "3 0\n", "3 1\n"]
    assert said == [1, 0, 1, 0]
