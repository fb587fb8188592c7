"""The audit finds what the records say, and does not pass where it could not look."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.campaigns import audit

ROOT = Path(__file__).parents[2]


def record(*events: dict[str, str], versions: tuple[str, ...] = (), **facts: Any) -> dict[str, Any]:
    """An OSV record of numpy, with one range."""
    ranges = [{"type": "ECOSYSTEM", "events": list(events)}] if events else []
    affected = {"package": {"ecosystem": "PyPI", "name": "NumPy"}, "ranges": ranges, "versions": list(versions)}
    return {"id": "PYSEC-1", "affected": [affected], **facts}


FIXED = record({"introduced": "2.0"}, {"fixed": "2.4.10"})


@pytest.mark.parametrize(
    ("known", "version", "vulnerable"),
    [
        (FIXED, "2.4.6", True),
        (FIXED, "2.4.10", False),
        (FIXED, "1.26.0", False),
        (record({"fixed": "2.1"}, {"introduced": "0"}), "2.0", True),
        (record({"introduced": "0"}, {"fixed": "1.0"}, {"introduced": "2.0"}), "2.4.6", True),
        (record({"introduced": "0"}, {"fixed": "1.0"}, {"introduced": "2.0"}), "1.5", False),
        (record({"introduced": "0"}, {"last_affected": "2.4.6"}), "2.4.6", True),
        (record({"introduced": "0"}, {"last_affected": "2.4.5"}), "2.4.6", False),
        (record(versions=("2.4.5", "2.4.6")), "2.4.6", True),
        (record({"introduced": "0"}, withdrawn="2026-01-01T00:00:00Z"), "2.4.6", False),
    ],
)
def test_a_version_is_vulnerable_where_a_record_says_so(known: dict[str, Any], version: str, vulnerable: bool) -> None:
    found, count = audit.look_up(iter([known]), {"numpy": version})
    assert found == ([f"numpy {version}: PYSEC-1"] if vulnerable else [])
    assert count == 1


def run(*arguments: str) -> tuple[int, list[str]]:
    command = [sys.executable, "-m", "tests.campaigns.audit", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert not done.stderr
    return done.returncode, done.stdout.splitlines()


def test_records_are_read_from_a_zip_or_a_directory(tmp_path: Path) -> None:
    version = audit.pinned((ROOT / "constraints.txt").read_text())["numpy"]
    (tmp_path / "records").mkdir()
    text = json.dumps(record(versions=(version,)))
    (tmp_path / "records/PYSEC-1.json").write_text(text)
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("PYSEC-1.json", text)
    for path in ("records", "all.zip"):
        code, lines = run("--advisories", str(tmp_path / path))
        assert code == 1
        assert lines[0].strip() == f"numpy {version}: PYSEC-1"
        assert lines[-1].endswith("1 vulnerabilities")


@pytest.mark.parametrize("answer", ["echo no connection >&2; exit 1", "echo '{\"dependencies\": []}'"])
def test_without_the_service_the_audit_fails_in_one_line_that_says_what_to_do(answer: str, tmp_path: Path) -> None:
    program = tmp_path / "pip-audit"
    program.write_text(f"#!/bin/sh\n{answer}\n")
    program.chmod(0o755)
    code, lines = run("--pip-audit", str(program))
    assert code == 1
    assert len(lines) == 1
    assert "nothing was checked" in lines[0]
    assert "ADVISORIES=" in lines[0]


def test_a_package_that_the_service_skipped_is_named(tmp_path: Path) -> None:
    answer = [{"name": "numpy", "version": "1", "vulns": []}, {"name": "torch", "skip_reason": "not found"}]
    program = tmp_path / "pip-audit"
    program.write_text(f"#!/bin/sh\necho '{json.dumps({'dependencies': answer})}'\n")
    program.chmod(0o755)
    assert audit.ask_service(str(program), {"numpy": "1", "torch": "2"}) == ([], ["torch"])
