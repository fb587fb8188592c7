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
    help="Measurements, compared with the machine's limits and with other frameworks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Repeats = Annotated[int, typer.Option(min=1, help="Number of turns; the median counts.")]


@app.command("compress", epilog="Example:  python -m benchmarks compress --dims 235690,10000000 --threads 1,2")
def compress(
    dims: Annotated[str, typer.Option(help="Comma-separated numbers of elements.")] = "235690,10000000,124000000",
    threads: Annotated[str, typer.Option(help="Comma-separated numbers of threads.")] = "1,2",
    repeats: Repeats = 5,
    device: Annotated[str | None, typer.Option(help="Measure on this torch device, such as cuda.")] = None,
    kept: Annotated[float, typer.Option(min=0, max=1, help="With --device: the kept fraction.")] = 0.001,
) -> None:
    """Time compression with error feedback: ours, torch's, and a memory copy."""
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
    """Compare the bytes of messages with their entropy, raw pairs and STC's formula; time encoding and decoding."""
    from benchmarks import wire as bench

    for table in bench.tables(numbers(dims, "--dims"), repeats):
        table.print()


@app.command("context", epilog="Example:  python -m benchmarks context --tasks cnn-cifar10 --rounds 400")
def context(
    tasks: Annotated[str, typer.Option(help="Comma-separated tasks.")] = "logistic-fmnist",
    methods: Annotated[
        str, typer.Option(help="Comma-separated methods, which must send ternary values.")
    ] = "gamma-fedht-q,gamma-fedht-s",
    keep: Annotated[float, typer.Option(min=1e-6, max=1, help="The methods' kept fraction.")] = 0.01,
    rounds: Annotated[int, typer.Option(min=0, help="Take messages of the first rounds only; 0: of all rounds.")] = 0,
    messages: Annotated[int, typer.Option(min=1, help="About how many messages to take.")] = 100,
) -> None:
    """Show what our position code saves of a run's messages, and what contexts would save as ideal code lengths."""
    need_torch()
    from benchmarks import context as bench

    for table in bench.tables(words(tasks), words(methods), keep, rounds, messages):
        table.print()


@app.command("density", epilog="Example:  python -m benchmarks density --dims 10000000 --kept 0.001,0.01")
def density(
    dims: Annotated[str, typer.Option(help="Comma-separated numbers of elements.")] = "10000000,20000000",
    kept: Annotated[str, typer.Option(help="Comma-separated kept fractions.")] = "0.001,0.01,0.1,0.3",
    repeats: Repeats = 9,
    cpu: Annotated[bool, typer.Option("--cpu", help="Measure the CPU time of one thread, for a busy machine.")] = False,
) -> None:
    """Time the fused pass, level "upload", encoding and decoding at several kept fractions, against a memory copy."""
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
    """Compare every registered method with the fused threshold: CPU time of one thread to compress and encode."""
    from benchmarks import methods as bench

    measured = {dim: bench.measure(dim, repeats) for dim in numbers(dims, "--dims")}
    for dim, figures in measured.items():
        bench.table(dim, figures).print()
    if out is not None:
        bench.write(out, measured)


@app.command("simulate", epilog="Example:  make peers && python -m benchmarks simulate --models logistic")
def simulate(
    models: Annotated[str, typer.Option(help="Comma-separated models.")] = "logistic,cnn,vgg11s,lenet,resnet",
    clients: Annotated[
        str, typer.Option(help="Comma-separated numbers of clients; half of them take part in a round.")
    ] = "10,100",
    threads: Annotated[int, typer.Option(min=1, help="Threads of each contender.")] = os.cpu_count() or 1,
    repeats: Repeats = 5,
    peers: Annotated[Path, typer.Option(help="Environment with pfl and flwr[simulation].")] = Path(".peers"),
) -> None:
    """Compare rounds per second of gammafl, a plain torch loop, pfl-research and Flower's simulation, in turns."""
    need_torch()
    from benchmarks import simulate as bench
    from gammafl.runs.progress import show_progress

    with show_progress() as progress:
        for work in bench.works(words(models), numbers(clients, "--clients"), threads):
            bench.table(work, peers, repeats, progress).print()


@app.command("start", epilog="Example:  python -m benchmarks start")
def start(repeats: Repeats = 5) -> None:
    """Time the import of the package, the help and the first round of a run, compared with importing torch."""
    need_torch()
    from benchmarks import start as bench

    bench.table(repeats).print()


@app.command("parts", epilog="Example:  python -m benchmarks parts --clients 100")
def parts(
    clients: Annotated[
        str, typer.Option(help="Comma-separated numbers of clients; half of them take part in a round.")
    ] = "10,100",
    repeats: Repeats = 9,
) -> None:
    """Show where the time of a round of logistic regression goes: phases, loops of a step, calls of an upload."""
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
    """Compare local steps of GPT-2 (124M parameters) with a plain loop, and measure their memory; takes 9 GB."""
    need_torch()
    from benchmarks import gpt2 as bench

    bench.table(sequence, threads, repeats).print()


@app.command("growth", epilog="Example:  python -m benchmarks growth --clients 10,1000,100000")
def growth(
    clients: Annotated[str, typer.Option(help="Comma-separated numbers of clients.")] = "10,100,1000,10000,100000",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds for each number of clients.")] = 1000,
) -> None:
    """Measure time and memory of a round as the number of clients grows, while ten of them take part."""
    need_torch()
    from benchmarks import growth as bench

    bench.table(numbers(clients, "--clients"), rounds).print()


@app.command(epilog="Example:  python -m benchmarks scale")
def scale(repeats: Repeats = 9) -> None:
    """Compute what a round costs a client and the server, up to 10⁹ parameters and 10⁶ clients, from measured costs."""
    from benchmarks import scale as bench

    for table in bench.tables(bench.measure(repeats), (1e5, 1e6, 1e7, 1e8, 1e9), (1e1, 1e3, 1e6)):
        table.print()


@app.command(epilog="Example:  python -m benchmarks cost --quick")
def cost(
    seeds: Annotated[str, typer.Option(help="Comma-separated repetitions; by default the study's own.")] = "",
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, to see that it works; proves nothing.")] = False,
    only: Annotated[
        list[str] | None, typer.Option(metavar="FACTOR=LEVEL,…", help="Only these levels; may be repeated.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where measurements and results are kept.")] = Path("runs/studies"),
    collect: Annotated[bool, typer.Option("--collect", help="Measure nothing, only show what is finished.")] = False,
) -> None:
    """Measure what is missing of the study `cost` (compression time against d), judge its claims, and draw it."""
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
    seeds: Annotated[str, typer.Option(help="Comma-separated seeds.")] = "0,1,2",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each run.")] = 20,
) -> None:
    """Compare robust strategies behind Compressed, with and without limits, when one client in five is hostile."""
    need_torch()
    from benchmarks import hostile as bench

    for method in bench.ROWS:
        bench.table(method, rounds, numbers(seeds, "--seeds", 0)).print()


@app.command(epilog="Example:  python -m benchmarks halved --seeds 0 --rounds 10")
def halved(
    seeds: Annotated[str, typer.Option(help="Comma-separated seeds.")] = "0,1,2",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each run.")] = 40,
) -> None:
    """Compare residuals on disk in bfloat16 and in float32: accuracy and bytes."""
    need_torch()
    from benchmarks import halved as bench

    bench.table(rounds, numbers(seeds, "--seeds", 0)).print()
