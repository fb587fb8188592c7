"""What runs on GitHub, as far as it can be checked here: its commands exist, its versions are those of the package."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

EVENTS = {"push", "pull_request"}
JOB = {"runs-on", "timeout-minutes", "steps", "strategy", "needs", "environment", "permissions"}


def read(path: Path) -> dict[str, Any]:
    """YAML's `on` is true."""
    content: dict[Any, Any] = yaml.safe_load(path.read_text())
    return {"on" if key is True else key: value for key, value in content.items()}


def jobs() -> list[tuple[str, dict[str, Any]]]:
    return [(f"{path.stem}: {name}", job) for path in WORKFLOWS for name, job in read(path)["jobs"].items()]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_has_a_name_events_and_no_right_but_to_read(path: Path) -> None:
    content = read(path)
    assert content["name"] == path.stem
    assert content["on"].keys() <= EVENTS
    assert content["permissions"] == {"contents": "read"}


@pytest.mark.parametrize(("name", "job"), jobs(), ids=[name for name, _ in jobs()])
def test_a_job_ends_and_its_steps_are_known_actions_or_targets_of_the_makefile(name: str, job: dict[str, Any]) -> None:
    assert job.keys() <= JOB
    assert job["runs-on"] == "ubuntu-latest"
    assert 0 < job["timeout-minutes"] <= 60
    for step in job["steps"]:
        assert ("uses" in step) != ("run" in step)
        if "uses" in step:
            assert re.fullmatch(r"(actions|pypa)/[a-z-]+@(v[0-9]+|release/v1)", step["uses"])
        elif step["run"].startswith("make "):
            target = step["run"].split()[1]
            there = re.search(rf"^{target}:.*##", MAKEFILE, re.MULTILINE)
            assert there, f"no target {target}"


def test_the_tests_run_on_each_python_that_the_package_claims_and_on_linux_alone() -> None:
    matrix = read(ROOT / ".github/workflows/tests.yml")["jobs"]["test"]["strategy"]["matrix"]
    claimed = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r"Python :: 3\.", c)]
    assert matrix["python"] == claimed
    assert [c for c in PROJECT["classifiers"] if c.startswith("Operating System")] == [
        "Operating System :: POSIX :: Linux"
    ]


def test_only_the_publishing_job_may_publish_without_a_password_and_only_what_was_tried() -> None:
    dist, publish = (read(ROOT / ".github/workflows/release.yml")["jobs"][name] for name in ("dist", "publish"))
    assert (publish["needs"], publish["environment"], publish["permissions"]) == ("dist", "pypi", {"id-token": "write"})
    assert [step["uses"].split("@")[0] for step in publish["steps"]] == [
        "actions/download-artifact",
        "pypa/gh-action-pypi-publish",
    ]
    assert {"run": "make dist"} in dist["steps"]
    assert [name for name, job in jobs() if "permissions" in job] == ["release: publish"]
    assert not any("secrets." in path.read_text() for path in WORKFLOWS)


@pytest.mark.parametrize("path", [p for p in FORMS if p.stem != "config"], ids=lambda path: path.stem)
def test_a_form_asks_questions_that_have_names_of_their_own(path: Path) -> None:
    form = read(path)
    assert {"name", "description", "body"} <= form.keys()
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert {field["type"] for field in fields} <= {"textarea", "input", "checkboxes"}
    assert all(field["attributes"]["label"] for field in fields)
    assert len({field["id"] for field in fields}) == len(fields) > 0


def test_pre_commit_runs_the_tools_of_make_lint() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    entries = [hook["entry"] for repo in config["repos"] for hook in repo["hooks"]]
    tools = re.findall(r"^\t\$\(BIN\)/(ruff check|ruff format|mypy)", MAKEFILE.partition("\nlint:")[2], re.MULTILINE)
    assert [e.removeprefix(".venv/bin/").replace("--check ", "").split(" --")[0] for e in entries] == tools[:3]


def test_the_citation_says_what_the_package_says() -> None:
    """Its schema is of version 1.2.0, whose required fields are these four."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert (citation["cff-version"], citation["title"]) == ("1.2.0", PROJECT["name"])
    assert citation["authors"] == PROJECT["authors"]
    assert (citation["license"], citation["keywords"]) == (PROJECT["license"], PROJECT["keywords"])
