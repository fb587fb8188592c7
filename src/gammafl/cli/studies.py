"""The commands `gammafl study`, `pareto`, `report` and `redraw`."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gammafl.cli import completion
from gammafl.cli.exit_codes import ExitCode
from gammafl.cli.layers import Budget, Config, DataDir, Link, Methods, Preset, Set, Task, base_settings, short_name
from gammafl.cli.parsing import command_again, need_torch, numbers, told_how_to_go_on, words
from gammafl.core.errors import InputError
from gammafl.core.names import did_you_mean

if TYPE_CHECKING:
    from gammafl.experiments.grid import Study
    from gammafl.experiments.runner import Campaign


def study(
    name: Annotated[str, typer.Argument(help="A study's name, or: list", autocompletion=completion.studies)],
    task: Annotated[str, typer.Option(help="Tasks, comma-separated; the study's own by default.")] = "",
    seeds: Annotated[str, typer.Option(help="Numbers, comma-separated; the study's own by default.")] = "",
    quick: Annotated[bool, typer.Option("--quick", help="A small size, to see it work; proves nothing.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time, each in a process.")] = os.cpu_count() or 1,
    only: Annotated[
        list[str] | None, typer.Option(metavar="FACTOR=LEVEL,…", help="Only these levels; may be repeated.")
    ] = None,
    preset: Preset = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of all runs.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Directory for runs and results.")] = Path("runs/studies"),
    collect: Annotated[bool, typer.Option("--collect", help="Run nothing: show what is finished.")] = False,
    rows: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="Also take runs from these results; may be repeated.")
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Take the data set from this directory.")] = None,
) -> None:
    """Reproduce a figure or a table of the paper: run missing runs, tell which claims hold, and draw it.

    The exit code is 1 if training diverged in some run; the other runs are shown.
    """
    from gammafl.paper.catalogue import KNOWN, STUDIES, study_named

    if name == "list":
        from gammafl.report.tables import TextTable

        lines = [[s.name, s.title, ", ".join(s.tasks) or "–"] for s in STUDIES.values()]
        others = [f"{s.name} with: {s.run_by}" for s in STUDIES.values() if s.run_by]
        note = "; ".join(["run one with: gammafl study NAME", *others])
        TextTable("studies", ["name", "what it shows", "tasks"], lines, note, True).print()
        return
    declared = study_named(name)
    from gammafl.config.layers import parse_settings
    from gammafl.config.presets import PRESET
    from gammafl.experiments.pages import need_rows
    from gammafl.experiments.runner import Options, plan_campaign
    from gammafl.experiments.store import rows_by_run

    seed_list = tuple(numbers(seeds, "--seeds", 0)) if seeds else ()
    chosen = asked_for(declared, only or [])
    if task:
        chosen["task"] = [*chosen.get("task", []), *check_tasks(declared, words(task))]
    changes = {**({PRESET: preset} if preset else {}), **parse_settings(set_ or [])}
    for path in rows or []:
        need_rows(path, "no rows of a study (rows.jsonl)")
    known = rows_by_run(rows or [], KNOWN)
    options = Options(out, seed_list, quick, jobs, chosen, changes, collect, data_dir, known)
    campaign = plan_campaign(declared, options)
    need_torch()
    run_and_show(campaign, command_again())


def pareto(
    task: Task = None,
    methods: Methods = None,
    keep: Annotated[
        str, typer.Option(help="Kept fractions, comma-separated; by default the range of each method's card.")
    ] = "",
    within: Annotated[float, typer.Option(min=0, help="How much worse than FedAVG, in points of accuracy.")] = 0.5,
    seeds: Annotated[str, typer.Option(help="Comma-separated; 0 to 4 by default.")] = "",
    link: Link = None,
    budget: Budget = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small size, to see it work; proves nothing.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time, each in a process.")] = os.cpu_count() or 1,
    preset: Preset = None,
    config: Config = None,
    set_: Set = None,
    out: Annotated[Path | None, typer.Option(help="Directory; a new one in runs/ by default.")] = None,
    collect: Annotated[bool, typer.Option("--collect", help="Run nothing: show what is finished.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Which method needs the fewest bytes? Accuracy against measured bytes, for methods at several kept fractions."""
    from gammafl.methods.registry import methods_in

    chosen, given = methods_in(methods), {"link": link, "budget": budget}
    base = base_settings("pareto", task, config, set_, given, {"keep": "--keep"}, preset, chosen)
    from gammafl.experiments import pareto as study
    from gammafl.experiments.runner import Options, plan_campaign
    from gammafl.runs.directory import free_directory

    try:
        keeps = [float(word) for word in words(keep)] if keep else []
    except ValueError:
        raise InputError(f"--keep takes fractions, such as --keep 0.001,0.01; got {keep!r}") from None
    declared = study.pareto(base, chosen, keeps)
    path = out or free_directory(Path("runs"), f"pareto-{short_name(base['task'])}")
    seed_list = tuple(numbers(seeds, "--seeds", 0)) if seeds else ()
    campaign = plan_campaign(declared, Options(path, seed_list, quick, jobs, collect=collect, data_dir=data_dir))
    need_torch()
    own = {} if within == study.WITHIN else {"within": within}
    run_and_show(campaign, command_again(None if out else path), own)


def report(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH…", help="Directories of runs, comparisons and studies.")],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
) -> None:
    """Write one HTML page that needs no other file: verdicts, interactive curves, heat maps and tables."""
    from gammafl.report.page import need_charts

    need_charts()
    from gammafl.experiments.pages import write_page
    from gammafl.paper.catalogue import KNOWN

    write_page(paths, out, KNOWN)
    print(f"page: {out}")


def redraw(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH…", help="Directories of studies and comparisons.")],
) -> None:
    """Make the tables and pictures of finished studies again, without new runs."""
    from gammafl.experiments.pages import need_rows
    from gammafl.experiments.store import draw_study, load_rows
    from gammafl.files.disk_errors import storing
    from gammafl.paper.catalogue import KNOWN
    from gammafl.report.page import need_charts

    need_charts()
    for path in paths:
        with storing(path, "run it again"):
            need_rows(path, "no rows of a study (rows.jsonl)")
            _, pictures = draw_study(path, *load_rows(path, KNOWN))
        print(f"{path}: {', '.join(['tables.md', *(picture.name for picture in pictures)])}")


def check_tasks(declared: "Study", names: list[str]) -> list[str]:
    factor = declared.factor("task")
    known = factor.names if factor else []
    for name in names:
        if name not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise InputError(f"{declared.name} has no task {name!r}{did_you_mean(name, known)}; {has}")
    return names


def asked_for(declared: "Study", only: list[str]) -> dict[str, list[str]]:
    """Factor → the levels in --only. A level with a comma in its name can only be given alone."""
    known = {factor.name: factor.names for factor in declared.factors}
    chosen: dict[str, list[str]] = {}
    for text in only:
        factor, _, levels = text.partition("=")
        found = [levels] if levels in known.get(factor, ()) else words(levels)
        if not found:
            raise InputError(f"--only takes FACTOR=LEVEL, such as --only classes=2,3; got {text!r}")
        chosen.setdefault(factor, []).extend(found)
    return chosen


def run_and_show(campaign: "Campaign", go_on_with: str, own: dict[str, Any] | None = None) -> None:
    """Runs missing runs, then prints, draws and writes the results.

    go_on_with   the command that continues after a stop
    own          options of the command on which the runs do not depend
    """
    from gammafl.experiments import runner
    from gammafl.experiments.pages import write_page
    from gammafl.experiments.store import QUICK_NOTE, all_rows, kept_rows, study_directory, write_study
    from gammafl.files.disk_errors import storing
    from gammafl.report.page import need_charts
    from gammafl.runs.progress import show_progress

    need_charts()
    options = campaign.options
    if options.quick:
        print(QUICK_NOTE, flush=True)
    with told_how_to_go_on(go_on_with, options.out), show_progress() as progress:
        runner.run_campaign(campaign, progress)
    made = {task: campaign.rows(task) for task in campaign.tasks}
    if options.collect:  # an empty table must not replace a full one
        made = {task: rows for task, rows in made.items() if rows.finished}
        if not made:
            raise InputError(f"nothing of {campaign.study.name} is finished in {options.runs}")
    for task, rows in made.items():
        path = study_directory(options, campaign.whole, task)
        everything = all_rows(campaign.whole, rows, kept_rows(campaign.whole, task, options))
        if own:
            everything = replace(everything, settings={**everything.settings, **own})
        with storing(path, "run it again: what is finished is kept"):
            tables, pictures = write_study(path, campaign.whole, everything)
            write_page([path], path / "report.html", {campaign.whole.name: campaign.whole})
        for table in tables:
            table.print()
        print("\n".join(f"picture: {picture}" for picture in pictures))
        print(f"in {path}: rows.jsonl, tables.md, report.html")
    if options.quick:
        print(QUICK_NOTE)
    end_if_diverged(campaign)


def end_if_diverged(campaign: "Campaign") -> None:
    """Names the runs that diverged, and ends with the exit code for divergence."""
    if campaign.diverged:
        names = ", ".join(path.name for path in campaign.diverged)
        print(f"{len(campaign.diverged)} run(s) diverged: {names}", file=sys.stderr)
        sys.exit(ExitCode.DIVERGED)
