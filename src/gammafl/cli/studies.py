"""`gammafl study …`: arguments in, calls out."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gammafl.cli.parsing import command_again, need_torch, numbers, told_how_to_go_on, words
from gammafl.core.errors import InputError

if TYPE_CHECKING:
    from gammafl.experiments.grid import Study
    from gammafl.experiments.runner import Campaign


def study(
    name: Annotated[str, typer.Argument(help="A study's name, or: list")],
    task: Annotated[str, typer.Option(help="Comma-separated; the study's own tasks by default.")] = "",
    seeds: Annotated[str, typer.Option(help="Comma-separated; the study's own by default.")] = "",
    quick: Annotated[bool, typer.Option("--quick", help="A small size, to see it work; proves nothing.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time, each in a process.")] = os.cpu_count() or 1,
    only: Annotated[
        list[str] | None, typer.Option(metavar="FACTOR=LEVEL,…", help="Only these levels; may be repeated.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of all runs.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where runs and results are kept.")] = Path("runs/studies"),
    collect: Annotated[bool, typer.Option("--collect", help="Run nothing: show what is finished.")] = False,
    data_dir: Annotated[Path | None, typer.Option(help="Take the data set from this directory.")] = None,
) -> None:
    """A figure or table of the paper: run what is missing, say which claims hold, draw it.

    Exit code 1 if training diverged in some run; the others are shown.
    """
    from gammafl.paper.catalogue import STUDIES, study_named

    if name == "list":
        from gammafl.report.tables import TextTable

        rows = [[s.name, s.title, ", ".join(s.tasks) or "–"] for s in STUDIES.values()]
        others = [f"{s.name} with: {s.run_by}" for s in STUDIES.values() if s.run_by]
        note = "; ".join(["run one with: gammafl study NAME", *others])
        TextTable("studies", ["name", "what it shows", "tasks"], rows, note, True).print()
        return
    declared = study_named(name)
    from gammafl.config.layers import parse_settings
    from gammafl.experiments.runner import Options, plan_campaign

    seed_list = tuple(numbers(seeds, "--seeds", 0)) if seeds else ()
    chosen = asked_for(declared, only or [])
    options = Options(
        out, tuple(words(task)), seed_list, quick, jobs, chosen, parse_settings(set_ or []), collect, data_dir
    )
    campaign = plan_campaign(declared, options)
    need_torch()
    run_and_show(campaign, command_again())


def report(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH…", help="Directories of runs, comparisons and studies.")],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
) -> None:
    """One self-contained HTML page: verdicts, interactive curves, heat maps and tables."""
    from gammafl.report.page import need_plotly

    need_plotly()
    from gammafl.experiments.pages import write_page
    from gammafl.paper.catalogue import STUDIES

    write_page(paths, out, STUDIES)
    print(f"page: {out}")


def _page(path: Path) -> str:
    """', report.html' when the study's page is written; without plotly it is left out, which is no failure."""
    from gammafl.report.page import need_plotly

    try:
        need_plotly()
    except InputError as error:
        print(f"report.html is left out: {error}")
        return ""
    from gammafl.experiments.pages import write_page
    from gammafl.paper.catalogue import STUDIES

    write_page([path], path / "report.html", STUDIES)
    return ", report.html"


def asked_for(declared: "Study", only: list[str]) -> dict[str, list[str]]:
    """Factor → the levels that are asked for; a level whose own name has a comma is asked for alone."""
    known = {factor.name: [level.name for level in factor.levels] for factor in declared.factors}
    chosen: dict[str, list[str]] = {}
    for text in only:
        factor, _, levels = text.partition("=")
        found = [levels] if levels in known.get(factor, ()) else words(levels)
        if not found:
            raise InputError(f"--only takes FACTOR=LEVEL, such as --only classes=2,3; got {text!r}")
        chosen.setdefault(factor, []).extend(found)
    return chosen


def run_and_show(campaign: "Campaign", go_on_with: str) -> None:
    """Runs what is missing, then prints, draws and writes results; `go_on_with` is the command for after a stop."""
    from gammafl.experiments.runner import run_campaign
    from gammafl.experiments.store import QUICK_NOTE, study_directory, write_study
    from gammafl.files.disk_errors import storing
    from gammafl.runs.progress import show_progress

    options = campaign.options
    if options.quick:
        print(QUICK_NOTE, flush=True)
    with told_how_to_go_on(go_on_with, options.out), show_progress() as progress:
        run_campaign(campaign, progress)
    found = {task: campaign.results(task) for task in options.tasks}
    if options.collect and campaign.trials:  # an empty table must not take the place of a full one
        found = {task: results for task, results in found.items() if results.runs}
        if not found:
            raise InputError(f"nothing of {campaign.study.name} is finished in {options.out / 'runs'}")
    for task, results in found.items():
        path = study_directory(options.out, campaign.study, task, options.quick)
        with storing(path, "run it again: what is finished is kept"):
            tables, pictures = write_study(path, campaign.study, results, options.settings)
        for table in tables:
            table.print()
        print("\n".join(f"picture: {picture}" for picture in pictures))
        print(f"in {path}: study.json, tables.md{_page(path)}")
    if options.quick:
        print(QUICK_NOTE)
    if campaign.diverged:
        print(f"{len(campaign.diverged)} run(s) diverged: {', '.join(campaign.diverged)}", file=sys.stderr)
        sys.exit(1)
