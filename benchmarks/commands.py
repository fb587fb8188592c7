"""`python -m benchmarks …`: arguments in, calls out."""

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from gammafl.cli.parsing import Commands, need_torch, numbers, words
from gammafl.core.errors import require

PROGRAM = "python -m benchmarks"
app = typer.Typer(
    cls=Commands,
    help="Measurements beside the machine's limit and beside peers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Repeats = Annotated[int, typer.Option(min=1, help="Turns; the median counts.")]


@app.command("compress", epilog="Example:  python -m benchmarks compress --dims 235690,10000000 --threads 1,2")
def compress(
    dims: Annotated[str, typer.Option(help="Comma-separated numbers of elements.")] = "235690,10000000,124000000",
    threads: Annotated[str, typer.Option(help="Comma-separated numbers of threads.")] = "1,2",
    repeats: Repeats = 5,
    device: Annotated[str | None, typer.Option(help="Measure on this device of torch's, such as cuda.")] = None,
    kept: Annotated[float, typer.Option(min=0, max=1, help="With --device: the kept fraction.")] = 0.001,
) -> None:
    """Compression with error feedback: ours, torch's, and a memory copy."""
    need_torch()
    from benchmarks import compress as bench
    from benchmarks import device as on_device

    if device is not None:
        for table in on_device.tables(numbers(dims, "--dims"), device, kept, repeats):
            table.print()
        return
    for table in bench.tables(numbers(dims, "--dims"), numbers(threads, "--threads"), repeats):
        table.print()


@app.command("wire", epilog="Example:  python -m benchmarks wire")
def wire(
    dims: Annotated[str, typer.Option(help="Comma-separated numbers of elements.")] = "235690,10000000,124000000",
    repeats: Repeats = 9,
) -> None:
    """Messages: bytes against their entropy, raw pairs and STC's formula; time of encoding and decoding."""
    from benchmarks import wire as bench

    for table in bench.tables(numbers(dims, "--dims"), repeats):
        table.print()


@app.command("context", epilog="Example:  python -m benchmarks context --tasks cnn-cifar10 --rounds 400")
def context(
    tasks: Annotated[str, typer.Option(help="Comma-separated.")] = "logistic-fmnist",
    methods: Annotated[
        str, typer.Option(help="Comma-separated; all of ternary values.")
    ] = "gamma-fedht-q,gamma-fedht-s",
    keep: Annotated[float, typer.Option(min=1e-6, max=1, help="The methods' kept fraction.")] = 0.01,
    rounds: Annotated[int, typer.Option(min=0, help="Messages are of so many first rounds; 0: of a whole run.")] = 0,
    messages: Annotated[int, typer.Option(min=1, help="About so many of them.")] = 100,
) -> None:
    """What the code of positions saves of messages that a run sends, and what contexts would, in ideal code lengths."""
    need_torch()
    from benchmarks import context as bench

    for table in bench.tables(words(tasks), words(methods), keep, rounds, messages):
        table.print()


@app.command("density", epilog="Example:  python -m benchmarks density --dims 10000000 --kept 0.001,0.01")
def density(
    dims: Annotated[str, typer.Option(help="Comma-separated numbers of elements.")] = "10000000,20000000",
    kept: Annotated[str, typer.Option(help="Comma-separated kept fractions.")] = "0.001,0.01,0.1,0.3",
    repeats: Repeats = 9,
    cpu: Annotated[
        bool, typer.Option("--cpu", help="One thread, in its CPU time: for a machine that is busy.")
    ] = False,
) -> None:
    """What more entries cost: the fused pass, level "upload", encoding and decoding, against a memory copy."""
    from benchmarks import density as bench

    for table in bench.tables(numbers(dims, "--dims"), _fractions(kept), repeats, cpu):
        table.print()


def _fractions(text: str) -> list[float]:
    try:
        found = [float(word) for word in words(text)]
    except ValueError:
        found = []
    require(bool(found) and all(0 < one < 1 for one in found), f"--kept takes numbers between 0 and 1, got {text!r}")
    return found


@app.command("methods", epilog="Example:  python -m benchmarks methods --dims 235690 --repeats 3")
def methods(
    dims: Annotated[str, typer.Option(help="Comma-separated numbers of elements.")] = "235690,10000000",
    repeats: Repeats = 9,
    out: Annotated[Path | None, typer.Option(help="A JSON file to write, for docs/methods.md.")] = None,
) -> None:
    """Every registered method beside the fused threshold: compress and encode, in CPU time of one thread."""
    from benchmarks import methods as bench

    measured = {dim: bench.measure(dim, repeats) for dim in numbers(dims, "--dims")}
    for dim, figures in measured.items():
        bench.table(dim, figures).print()
    if out is not None:
        bench.write(out, measured)


@app.command("simulate", epilog="Example:  make peers && python -m benchmarks simulate --models logistic")
def simulate(
    models: Annotated[str, typer.Option(help="Comma-separated.")] = "logistic,cnn,vgg11s,lenet,resnet",
    clients: Annotated[str, typer.Option(help="Comma-separated; half of them take part.")] = "10,100",
    threads: Annotated[int, typer.Option(min=1, help="Threads of each contender.")] = os.cpu_count() or 1,
    repeats: Repeats = 5,
    peers: Annotated[Path, typer.Option(help="Environment with pfl and flwr[simulation].")] = Path(".peers"),
) -> None:
    """Rounds per second: gammafl, a plain torch loop, pfl-research and Flower's simulation, taking turns."""
    need_torch()
    from benchmarks import simulate as bench
    from gammafl.runs.progress import show_progress

    with show_progress() as progress:
        for work in bench.works(words(models), numbers(clients, "--clients"), threads):
            bench.table(work, peers, repeats, progress).print()


@app.command("start", epilog="Example:  python -m benchmarks start")
def start(repeats: Repeats = 5) -> None:
    """How long the package, the help and the first round of a run take to be there, against importing torch."""
    need_torch()
    from benchmarks import start as bench

    bench.table(repeats).print()


@app.command("parts", epilog="Example:  python -m benchmarks parts --clients 100")
def parts(
    clients: Annotated[str, typer.Option(help="Comma-separated; half of them take part.")] = "10,100",
    repeats: Repeats = 9,
) -> None:
    """Where the time of a round of logistic regression goes: phases, the loops of a step, the calls of an upload."""
    need_torch()
    from benchmarks import parts as bench

    for table in bench.tables(numbers(clients, "--clients"), repeats):
        table.print()


@app.command("gpt2", epilog="Example:  python -m benchmarks gpt2 --sequence 64")
def gpt2(
    sequence: Annotated[int, typer.Option(min=1, max=1024, help="Tokens of a sample.")] = 64,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each contender.")] = os.cpu_count() or 1,
    repeats: Repeats = 5,
) -> None:
    """Local steps of GPT-2 with 124M parameters against a plain loop, and their memory; takes 9 GB."""
    need_torch()
    from benchmarks import gpt2 as bench

    bench.table(sequence, threads, repeats).print()


@app.command("growth", epilog="Example:  python -m benchmarks growth --clients 10,1000,100000")
def growth(
    clients: Annotated[str, typer.Option(help="Comma-separated.")] = "10,100,1000,10000,100000",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each size.")] = 1000,
) -> None:
    """Time and memory of a round as the number of clients grows, ten of them taking part."""
    need_torch()
    from benchmarks import growth as bench

    bench.table(numbers(clients, "--clients"), rounds).print()


@app.command(epilog="Example:  python -m benchmarks scale")
def scale(repeats: Repeats = 9) -> None:
    """What a round costs a client and the server, up to 10⁹ parameters and 10⁶ clients, from measured unit costs."""
    from benchmarks import scale as bench

    for table in bench.tables(bench.measure(repeats), (1e5, 1e6, 1e7, 1e8, 1e9), (1e1, 1e3, 1e6)):
        table.print()


@app.command(epilog="Example:  python -m benchmarks cost --quick")
def cost(
    seeds: Annotated[str, typer.Option(help="Comma-separated repetitions; the study's own by default.")] = "",
    quick: Annotated[bool, typer.Option("--quick", help="A small size, to see it work; proves nothing.")] = False,
    only: Annotated[
        list[str] | None, typer.Option(metavar="FACTOR=LEVEL,…", help="Only these levels; may be repeated.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where measurements and results are kept.")] = Path("runs/studies"),
    collect: Annotated[bool, typer.Option("--collect", help="Measure nothing: show what is finished.")] = False,
) -> None:
    """The study `cost`: compression time against d; measure what is missing, say which claims hold, draw it."""
    from benchmarks.cost import MEASURED
    from gammafl.cli.studies import asked_for, run_and_show
    from gammafl.experiments.runner import Options, plan_campaign

    repetitions = tuple(numbers(seeds, "--seeds", 0)) if seeds else ()
    options = Options(out, seeds=repetitions, quick=quick, only=asked_for(MEASURED, only or []), collect=collect)
    campaign = plan_campaign(MEASURED, options)
    need_torch()
    run_and_show(campaign, f"{PROGRAM} {shlex.join(sys.argv[1:])}")


@app.command(epilog="Example:  python -m benchmarks hostile --seeds 0 --rounds 10")
def hostile(
    seeds: Annotated[str, typer.Option(help="Comma-separated.")] = "0,1,2",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each run.")] = 20,
) -> None:
    """One client in five is hostile: robust strategies behind Compressed, with and without limits."""
    need_torch()
    from benchmarks import hostile as bench

    for method in bench.ROWS:
        bench.table(method, rounds, numbers(seeds, "--seeds", 0)).print()


@app.command(epilog="Example:  python -m benchmarks halved --seeds 0 --rounds 10")
def halved(
    seeds: Annotated[str, typer.Option(help="Comma-separated.")] = "0,1,2",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each run.")] = 40,
) -> None:
    """Residuals on disk in bfloat16 beside float32: accuracy and bytes."""
    need_torch()
    from benchmarks import halved as bench

    bench.table(rounds, numbers(seeds, "--seeds", 0)).print()
