"""What development installs: the lock says what constraints.txt says, with hashes, and where nothing comes from."""

import re
from pathlib import Path

from tests.campaigns.audit import pinned

ROOT = Path(__file__).parents[1]
LOCK = (ROOT / "requirements.lock").read_text()
CONSTRAINTS = (ROOT / "constraints.txt").read_text()


def test_the_lock_has_the_versions_of_the_constraints() -> None:
    locked, tried = pinned(LOCK), pinned(CONSTRAINTS)
    assert len(locked) > 50
    assert {name: version for name, version in locked.items() if tried.get(name, version) != version} == {}


def test_everything_locked_has_a_hash() -> None:
    entries = re.split(r"^(?=[A-Za-z0-9])", LOCK, flags=re.MULTILINE)[1:]
    assert len(entries) == len(pinned(LOCK))
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []


def test_neither_names_a_host_or_a_machine() -> None:
    for text in (LOCK, CONSTRAINTS):
        assert not re.search(r"https?://|file:|--(extra-)?index|--find-links", text)
