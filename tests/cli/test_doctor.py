"""`gammafl doctor`: what an issue needs, and nothing that is nobody's business."""

import json
import sys
from pathlib import Path

import pytest

import gammafl as gf
from gammafl.cli import doctor
from tests.test_cli import gammafl


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GAMMAFL_CACHE", str(tmp_path / "data"))
    monkeypatch.setenv("GAMMAFL_STATE", f"{tmp_path}s/of/others")
    return tmp_path


def test_the_text_names_versions_devices_and_directories_without_the_users_home(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_TOKEN", "very-secret")
    (home / "data").mkdir()
    (home / "data/file").write_bytes(bytes(1234))
    code, out, _ = gammafl("doctor", capsys=capsys)
    assert code == 0
    assert f"  gammafl: {gf.__version__}\n" in out
    assert "  data sets: ~/data, 1.23 kB\n" in out
    assert "  GAMMAFL_CACHE: ~/data\n" in out
    assert "devices: cpu" in out
    assert f"{home}s/of/others, not made yet" in out  # another's home that begins like the user's
    assert f"{home}/" not in out
    assert "very-secret" not in out


def test_programs_get_the_same_facts_as_json(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = gammafl("doctor", "--json", capsys=capsys)
    facts = json.loads(out)
    assert code == 0
    assert facts["versions"]["python"] == sys.version.split()[0]
    assert facts["directories"]["data sets"] == {"text": "~/data, not made yet", "path": "~/data", "bytes": 0}
    assert list(facts) == ["versions", "machine", "features", "directories", "environment"]


def test_a_feature_whose_package_is_missing_comes_with_the_command_that_brings_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    extras = {"": ["numpy"], "flower": ["flwr", "numpy"], "new": ["numpy"], "dev": ["pytest"]}
    monkeypatch.setattr(doctor, "_requirements", lambda: extras)
    monkeypatch.setattr(doctor, "_version", lambda package: None if package == "flwr" else "1")
    assert doctor.examination()["features"] == {
        "Flower apps: gf.flower": "missing: flwr; pip install 'gammafl[flower]'",
        "new": "yes",
    }


def test_a_torch_that_can_not_be_imported_is_said_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(doctor, "_version", lambda package: "1")
    assert "torch can't be imported" in doctor.examination()["machine"]["devices"]
