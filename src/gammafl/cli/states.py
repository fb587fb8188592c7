"""gammafl state: lists and removes the states that clients of Flower apps store on this machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gammafl.cli.parsing import Commands, need_flower
from gammafl.core.errors import InputError

if TYPE_CHECKING:
    from gammafl.flower.states import TrainingStates

app = typer.Typer(
    cls=Commands, help="States of Flower clients on this machine: list them, remove them.", no_args_is_help=True
)
Directory = Annotated[
    Path | None,
    typer.Option("--dir", help="As in compress(state_dir=…). By default $GAMMAFL_STATE or the user's directory."),
]


@app.command("list", epilog="Example:  gammafl state list")
def list_(directory: Directory = None) -> None:
    """Show the trainings whose clients have states here, the oldest first."""
    from rich.console import Console
    from rich.table import Table

    need_flower()
    from gammafl.flower.states import trainings

    rows = [(place, states) for place in _places(directory) for states in trainings(place)]
    if not rows:
        print(f"no states in {' or '.join(map(str, _places(directory)))}")
        return
    table = Table("training", "clients", "size", "last change", "directory")
    for place, states in rows:
        table.add_row(states.training, str(states.clients), *_size_and_age(states), str(place))
    Console().print(table)


@app.command("clean", epilog="Example:  gammafl state clean --older-than 7")
def clean(
    directory: Directory = None,
    older_than: Annotated[
        float | None, typer.Option(metavar="DAYS", min=0, help="Remove trainings without a change for this many days.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Remove all. A training that still runs then loses its residuals.")
    ] = False,
) -> None:
    """Remove states of ended trainings. They are also removed automatically: at the end, or after 30 days."""
    need_flower()
    from gammafl.flower import states

    if (older_than is None) != everything:
        raise InputError("say which states to remove: --older-than DAYS, or --all")
    gone = [
        (place, training)
        for place in _places(directory)
        for training in states.clean(place, days=0 if everything else older_than)
    ]
    for place, training in gone:
        print(f"removed {place / training.path.name}: {training.clients} clients, {_size_and_age(training)[0]}")
    busy = [
        training for place in _places(directory) for training in states.trainings(place) if states.in_use(training.path)
    ]
    for training in busy:
        print(f"kept {training.path}: one of its clients trains now")
    if not gone and not busy:
        print("nothing to remove")


def _places(directory: Path | None) -> list[Path]:
    from gammafl.flower.states import simulation_directory, state_directory

    return [directory] if directory is not None else [state_directory(), simulation_directory()]


def _size_and_age(states: "TrainingStates") -> tuple[str, str]:
    from datetime import datetime

    from gammafl.federated.units import show_bytes

    return show_bytes(states.size_bytes), f"{datetime.fromtimestamp(states.changed):%Y-%m-%d %H:%M}"
