"""Known vulnerabilities in the versions that development installs.

    python -m tests.campaigns.audit [--pip-audit PROGRAM] [--advisories PATH]

pip-audit asks PyPI's advisory service. Where that can't be reached, `--advisories` takes OSV records instead: a zip or
a directory of JSON files, such as OSV's export of its PyPI records. Without either the audit fails: that nothing was
checked must not pass for nothing having been found.
"""

import argparse
import json
import re
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from tests.campaigns.common import say, verdict

ROOT = Path(__file__).parents[2]
Pins = dict[str, str]


def pinned(text: str) -> Pins:
    """Name as pip compares names → version."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", text, re.MULTILINE)
    return {_normal(name): version for name, version in found}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def ask_service(program: str, pins: Pins) -> tuple[list[str], list[str]]:
    """(vulnerabilities, what could not be checked)."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as wanted:
        wanted.write("".join(f"{name}=={version}\n" for name, version in pins.items()))
        wanted.flush()
        command = [program, "--format", "json", "--progress-spinner", "off", "--disable-pip", "--no-deps"]
        done = subprocess.run([*command, "-r", wanted.name], capture_output=True, text=True)
    try:
        answers = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):  # it gave up, with a traceback or a line about the connection
        return [], list(pins)
    found = [f"{a['name']} {a['version']}: {v['id']}" for a in answers for v in a.get("vulns", [])]
    checked = {_normal(a["name"]) for a in answers if "skip_reason" not in a}
    return found, [name for name in pins if name not in checked]


def records_of(path: Path) -> Iterator[dict[str, Any]]:
    """The OSV records of a zip or a directory."""
    if path.is_dir():
        yield from (json.loads(file.read_text()) for file in sorted(path.rglob("*.json")))
    else:
        with zipfile.ZipFile(path) as archive:
            yield from (json.loads(archive.read(name)) for name in archive.namelist() if name.endswith(".json"))


def look_up(records: Iterator[dict[str, Any]], pins: Pins) -> tuple[list[str], int]:
    """(vulnerabilities of `pins`, how many records were read)."""
    found, count = [], 0
    for record in records:
        count += 1
        for affected in [] if "withdrawn" in record else record.get("affected", []):
            package = affected.get("package", {})
            name = _normal(package.get("name", ""))
            if package.get("ecosystem") == "PyPI" and name in pins and concerns(affected, pins[name]):
                found.append(f"{name} {pins[name]}: {record['id']}")
    return sorted(set(found)), count


def concerns(affected: dict[str, Any], version: str) -> bool:
    """Whether an OSV record's versions or ranges hold `version`."""
    ranges = [r["events"] for r in affected.get("ranges", []) if r.get("type") == "ECOSYSTEM"]
    return version in affected.get("versions", []) or any(_within(events, Version(version)) for events in ranges)


def _within(events: list[dict[str, str]], version: Version) -> bool:
    """By OSV's rule: the events in the order of their versions switch "affected" on and off."""
    inside = False
    for event in sorted(events, key=_at):
        if "introduced" in event and _at(event) <= version:
            inside = True
        elif ("fixed" in event and _at(event) <= version) or ("last_affected" in event and _at(event) < version):
            inside = False
    return inside


def _at(event: dict[str, str]) -> Version:
    text = next(iter(event.values()))
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0")  # rather a false alarm than a vulnerability that is passed over


def main() -> None:
    parser = argparse.ArgumentParser(description="look for known vulnerabilities")
    parser.add_argument("--pip-audit", default="pip-audit")
    parser.add_argument("--advisories", type=Path, default=None)
    options = parser.parse_args()
    pins = pinned((ROOT / "constraints.txt").read_text()) | pinned((ROOT / "requirements.lock").read_text())
    if options.advisories is not None:
        found, count = look_up(records_of(options.advisories), pins)
        unchecked, source = ([] if count else list(pins)), f"{count:,} records of {options.advisories}"
    else:
        found, unchecked = ask_service(options.pip_audit, pins)
        source = "PyPI's advisory service"
    if len(unchecked) == len(pins):
        advice = "run it where that can be reached, or with OSV's records: make audit ADVISORIES=all.zip"
        verdict("audit", False, f"nothing was checked, since {source} had no answer; {advice}")
    for line in [*found, *(f"{name}: could not be checked" for name in unchecked)]:
        say(f"  {line}")
    text = f"{len(pins) - len(unchecked)} of {len(pins)} packages checked with {source}"
    verdict("audit", not found and not unchecked, f"{text}, {len(found)} vulnerabilities")


if __name__ == "__main__":
    main()
