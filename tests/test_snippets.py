"""What the documentation shows can be typed: every block of Python runs on its own, every command is one.

Commands that take seconds and need nothing that is not in the package run, in their page's order; of the others, the
command, its options and its settings must exist. A block whose first line names a file is that file, which other blocks
of its page can import.
"""

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from markdown_it import MarkdownIt
from markdown_it.token import Token

from benchmarks.commands import app as benchmarks
from gammafl.cli import main as cli
from gammafl.cli.layers import base_settings, layers
from gammafl.cli.parsing import numbers, words
from gammafl.cli.studies import asked_for, check_tasks
from gammafl.config.layers import make_config, parse_settings
from gammafl.experiments.compare import check_methods
from gammafl.experiments.pareto import pareto
from gammafl.experiments.runner import Options, plan_campaign
from gammafl.methods.registry import methods_in
from gammafl.paper.catalogue import study_named
from gammafl.tasks.data.catalogue import dataset_named

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("results/*.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
]
PAGES += sorted(ROOT.glob("examples/**/*.md"))
COMMAND = re.compile(r"(?:[A-Z_]+=\S+ )*(gammafl|make|python|pip|flwr|flower-superlink|flower-supernode) ")
FILE = re.compile(r"# (\w+\.py)\n")
QUICK = [["tasks"], ["methods"], ["calibrate"], ["data", "list"], ["study", "list"], ["run", "logistic-mini"]]
QUICK += [["compare", "logistic-mini", "--methods", "gamma-fedht,top-k,own.py:mine"]]

pytestmark = pytest.mark.usefixtures("registry_as_before")


class Snippet(NamedTuple):
    page: str
    kind: str
    """python, diff; command in a block, or inline in a sentence, where it may be a command's name alone."""
    text: str

    def __str__(self) -> str:
        return f"{self.page}: {self.text.splitlines()[0]}"


def snippets_of(page: Path) -> Iterator[Snippet]:
    name = str(page.relative_to(ROOT))

    def walk(tokens: list[Token]) -> Iterator[Snippet]:
        for token in tokens:
            if token.type == "fence" and token.info:
                yield Snippet(name, token.info, token.content)
            elif token.type in ("fence", "code_block"):
                lines = re.sub(r"\\\n\s*", "", token.content).splitlines()
                yield from (Snippet(name, "command", line) for line in lines if COMMAND.match(line))
            elif token.type == "code_inline" and COMMAND.match(token.content):
                yield Snippet(name, "inline", token.content)
            yield from walk(token.children or [])

    return walk(MarkdownIt().enable("table").parse(page.read_text("utf-8")))


SNIPPETS = [snippet for page in PAGES for snippet in snippets_of(page)]


def of_kind(*kinds: str) -> pytest.MarkDecorator:
    found = [snippet for snippet in SNIPPETS if snippet.kind in kinds]
    assert found
    return pytest.mark.parametrize("snippet", found, ids=str)


def test_every_block_has_a_kind_that_is_tested() -> None:
    assert {snippet.kind for snippet in SNIPPETS} == {"python", "diff", "toml", "command", "inline"}


@of_kind("python")
def test_a_block_of_python_runs_on_its_own(
    snippet: Snippet, in_tmp: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the page shows what `python FILE` prints, it prints that, but for digits, which differ between processors."""
    import_files(snippet.page, monkeypatch)
    exec(compile(snippet.text, str(snippet), "exec"), {"__name__": "__main__"})
    if (file := FILE.match(snippet.text)) and (shown := shown_output(snippet.page, file[1])):
        assert re.sub(r"\d+", "0", capsys.readouterr().out).split() == re.sub(r"\d+", "0", shown).split()


def shown_output(page: str, file: str) -> str | None:
    """The block that follows `python FILE`."""
    blocks = [token for token in MarkdownIt().parse((ROOT / page).read_text("utf-8")) if token.type == "fence"]
    return next((after.content for block, after in pairwise(blocks) if block.content == f"python {file}\n"), None)


@of_kind("diff")
@pytest.mark.parametrize("left_out", ["+", "-"], ids=["before", "after"])
def test_a_difference_runs_before_and_after(snippet: Snippet, left_out: str, in_tmp: Path) -> None:
    lines = [line[2:] for line in snippet.text.splitlines() if not line.startswith(left_out)]
    exec(compile("\n".join(lines), str(snippet), "exec"), {"__name__": "__main__"})


@of_kind("toml")
def test_a_block_of_toml_can_be_read(snippet: Snippet) -> None:
    assert tomllib.loads(snippet.text)


@of_kind("command", "inline")
def test_a_command_can_be_given(snippet: Snippet, in_tmp: Path) -> None:
    write_files(snippet.page)
    given = shlex.split(snippet.text, comments=True)
    assert snippet.kind == "inline" or not any("…" in word for word in given)
    while "=" in given[0]:
        del given[0]
    program, arguments = given[0], given[1:]
    if program == "gammafl":
        check_gammafl(arguments, snippet.kind == "inline")
    elif program == "make":
        check_targets([word for word in arguments if "=" not in word])
    elif given[:3] == ["python", "-m", "benchmarks"]:
        parsed(benchmarks, arguments[2:], snippet.kind == "inline")
    elif given[:2] == ["python", "-m"]:
        source = (ROOT / arguments[1].replace(".", "/")).with_suffix(".py").read_text()
        assert all(f'"{word}"' in source for word in arguments[2:] if word.startswith("--"))
    elif program == "python":
        assert (ROOT / arguments[0]).is_file() or Path(arguments[0]).is_file()
    elif program == "pip" and arguments[0] == "install":
        check_extras(" ".join(arguments))
    elif program == "pip":
        check_pip(arguments)
    else:
        check_flower(program, arguments)


def write_files(page: str) -> list[Path]:
    """The blocks of a page that are files, in the working directory, where the commands find them."""
    files = []
    for snippet in SNIPPETS:
        if (snippet.page, snippet.kind) == (page, "python") and (named := FILE.match(snippet.text)):
            files.append(Path(named[1]))
            files[-1].write_text(snippet.text)
    return files


def import_files(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, where Python finds them: those of an earlier test are forgotten."""
    monkeypatch.syspath_prepend(Path.cwd())
    for file in write_files(page):
        sys.modules.pop(file.stem, None)


def check_gammafl(arguments: list[str], may_be_a_name: bool) -> None:
    command, given = parsed(cli.app, arguments, may_be_a_name)
    if command in ("run", "compare") and given["config"] is None:
        methods = check_methods(methods_in(given.get("method") or given.get("methods") or "gamma-fedht"))
        make_config(*layers(given["task"], None, given["set_"], given["preset"], methods[-1:]), {"method": methods[-1]})
    elif command == "pareto":
        options = {name: given[name] for name in ("link", "budget")}
        base = base_settings("pareto", given["task"], None, given["set_"], options)
        pareto(base, methods_in(given["methods"]), (0.01,))
    elif command == "study" and given["name"] != "list":
        study = study_named(given["name"])
        seeds = tuple(numbers(given["seeds"], "--seeds", 0)) if given["seeds"] else ()
        chosen, settings = asked_for(study, given["only"] or []), parse_settings(given["set_"] or [])
        chosen |= {"task": check_tasks(study, words(given["task"]))} if given["task"] else {}
        settings |= {"preset": given["preset"]} if given["preset"] else {}
        plan_campaign(study, Options(Path("runs"), seeds, given["quick"], 1, chosen, settings))
    elif command == "get":
        dataset_named(given["name"])


def parsed(app: typer.Typer, arguments: list[str], may_be_a_name: bool) -> tuple[str, dict[str, Any]]:
    """The name and the parameters of the command that the command line would call; of a name alone, nothing."""
    try:
        return called_by(app, arguments)
    except Exception as error:
        if not may_be_a_name or type(error).__name__ not in ("MissingParameter", "NoArgsIsHelpError"):
            raise
        return called_by(app, [*arguments, "--help"])


def called_by(app: typer.Typer, arguments: list[str]) -> tuple[str, dict[str, Any]]:
    """Nothing is called."""
    called: dict[str, dict[str, Any]] = {}

    def watch(command: Any) -> None:
        for name, part in getattr(command, "commands", {}).items():
            if hasattr(part, "commands"):
                watch(part)
            elif not part.hidden:  # a hidden one only says what to write instead of it
                part.callback = lambda name=name, /, **given: called.update({name: given})

    command = typer.main.get_command(app)
    watch(command)
    command.main(arguments, standalone_mode=False)
    return called.popitem() if called else ("", {})


def check_targets(targets: list[str]) -> None:
    found = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert targets
    assert set(targets) <= set(found)


def check_extras(arguments: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    asked = {extra for group in re.findall(r"(?:gammafl|\.)\[(.*?)\]", arguments) for extra in group.split(",")}
    assert asked
    assert asked <= set(project["optional-dependencies"])


def check_pip(arguments: list[str]) -> None:
    options = {word.partition("=")[0] for word in arguments if word.startswith("--")}
    assert options <= set(re.findall(r"--[a-z-]+", help_of("pip", arguments[0])))


def check_flower(program: str, arguments: list[str]) -> None:
    """`flwr run …` and `flwr supernode register …` have options of their own."""
    depth = 2 if program == "flwr" and arguments[0] == "supernode" else int(program == "flwr")
    options = {word for word in arguments if word.startswith("--")}
    assert options <= set(re.findall(r"--[a-z-]+", help_of(program, *arguments[:depth])))


@cache
def help_of(program: str, *names: str) -> str:
    command = [str(Path(sys.executable).with_name(program)), *names, "--help"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def is_quick(arguments: list[str]) -> bool:
    starts = [*QUICK, ["run", "mytask.py:build"], ["run", "--config"]]
    return any(arguments[: len(start)] == start for start in starts)


@pytest.mark.parametrize("page", sorted({snippet.page for snippet in SNIPPETS if snippet.kind == "command"}))
def test_the_quick_commands_of_a_page_run_one_after_the_other(
    page: str, in_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(page)
    blocks = [shlex.split(s.text, comments=True) for s in SNIPPETS if (s.page, s.kind) == (page, "command")]
    for command in blocks:
        if command[0] == "gammafl" and is_quick(command[1:]):
            monkeypatch.setattr(sys, "argv", command)
            cli.app(standalone_mode=False)
