"""`make flower-demo LINK=1mbit`: the app of this directory over slow links, with gammafl and without.

python thin_link.py LINK [DIRECTORY]      # keys, logs, states, result.json, picture.png; build/flower-link by default

Each SuperNode has its own relay, which limits the speed to that of the link. There are four runs: gammafl and FedAvg,
each at full speed and on the link. At full speed, a round's time without the link is measured. The virtual clock of
`gammafl run --link` gets this constant and the measured bytes of each message, and is compared with the real clock.
"""

import json
import shutil
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from demo import NODES, Run, console, read_lines, say, size
from deployment import Deployment, DeploymentError
from rich.table import Table

from gammafl import InputError, Link
from gammafl.config.link import show_rate
from gammafl.federated.link import break_even, round_seconds

ROUNDS, CONSTANT_ROUNDS = 12, 6
METHOD, KEEP, DOWNLINK = "gamma-fedht:values=f16", 0.1, "gamma-fedht:values=f16,keep=0.2"
"""Settings that need about as many rounds as FedAvg here; ternary values need more. The downlink keeps more than the
uplink, since the model's change is the sum of three uploads."""

POLL_SECONDS = 0.25
"""Flower's server checks for replies every 3 s. Rounds would take a multiple of that, which hides the link's time."""

SLOWEST = 250_000
"""The slowest link, in bits per second. A request of Flower has 30 s, and the largest tensor of 803 kB takes 26 s."""

BELOW = 0.01
"""The target accuracy is this much below the lower of the two final accuracies."""


@dataclass(frozen=True)
class Curve:
    """The accuracy and the time of a run: one number each per round, from the first round on."""

    name: str
    accuracy: list[float]
    real_seconds: list[float]
    virtual_seconds: list[float]
    up_bytes: int
    down_bytes: int
    socket_up_bytes: int
    socket_down_bytes: int
    compress_seconds: float
    """A client's seconds for compression in a round, the median."""

    server_seconds: float
    """The strategy's seconds in a round."""

    def to(self, target: float, seconds: list[float]) -> float | None:
        """Seconds to the first round whose accuracy is at least `target`."""
        return next((when for when, reached in zip(seconds, self.accuracy, strict=True) if reached >= target), None)


def curve(run: Run, link: Link | None) -> Curve:
    """The curve from the files of a run. `link` has the constant time of a round as its compute time."""
    lines = read_lines(run.out / "rounds.jsonl")
    start, *reached = (line for line in lines if "accuracy" in line)
    sent = [line for line in lines if "accuracy" not in line]
    virtual, now = [], 0.0
    for number, line in enumerate(sent, start=1):
        down, up = ({int(node): size for node, size in line[way].items()} for way in ("down", "up"))
        now += round_seconds(link, number, down, up) if link else 0.0
        virtual.append(now)
    return Curve(
        name=run.name,
        accuracy=[line["accuracy"] for line in reached],
        real_seconds=[line["seconds"] - start["seconds"] for line in reached],
        virtual_seconds=virtual,
        up_bytes=run.total("uplink_bytes"),
        down_bytes=run.total("downlink_bytes"),
        socket_up_bytes=run.sockets[0],
        socket_down_bytes=run.sockets[1],
        compress_seconds=median(line["compress_seconds"] for line in sent),
        server_seconds=(reached[-1]["server_seconds"] - start["server_seconds"]) / len(reached),
    )


def steps(seconds: list[float]) -> list[float]:
    return [after - before for before, after in zip([0.0, *seconds], seconds, strict=False)]


@dataclass(frozen=True)
class Outcome:
    """The two runs on the link, and the comparison of the clocks."""

    link: str
    plain_constant_seconds: float
    small_constant_seconds: float
    """A round's seconds without the link: Flower, training, evaluation, and compression if there is any."""

    plain: Curve
    small: Curve

    @property
    def target(self) -> float:
        return min(self.plain.accuracy[-1], self.small.accuracy[-1]) - BELOW

    @property
    def saved(self) -> tuple[float, float]:
        """The seconds that gammafl saves in all rounds: measured, and by the virtual clock."""
        real, virtual = (
            getattr(self.plain, clock)[-1] - getattr(self.small, clock)[-1]
            for clock in ("real_seconds", "virtual_seconds")
        )
        return real, virtual

    @property
    def extra_seconds(self) -> float:
        """The seconds for compression in a round, on a client and on the server."""
        return self.small.compress_seconds + self.small.server_seconds - self.plain.server_seconds

    @property
    def saved_bytes(self) -> float:
        """The bytes that a client saves in a round, both directions together."""
        both = [run.up_bytes + run.down_bytes for run in (self.plain, self.small)]
        return (both[0] - both[1]) / NODES / len(self.plain.accuracy)

    def facts(self) -> dict[str, Any]:
        real, virtual = self.saved
        return asdict(self) | {
            "target": self.target,
            "saved_real_seconds": real,
            "saved_virtual_seconds": virtual,
            "virtual_over_real": virtual / real,
            "extra_seconds": self.extra_seconds,
            "break_even_bits_per_second": break_even(self.saved_bytes, self.extra_seconds),
        }


def table(outcome: Outcome) -> Table:
    made = Table(title=f"{NODES} SuperNodes, each with {outcome.link}; {len(outcome.plain.accuracy)} rounds")
    for column in ("", "FedAvg", "with gammafl", "saved"):
        made.add_column(column, justify="right" if column else "left")
    plain, small, target = outcome.plain, outcome.small, outcome.target

    def seconds(name: str, before: float | None, after: float | None) -> None:
        texts = ["not reached" if value is None else f"{value:.0f} s" for value in (before, after)]
        both = before is not None and after is not None
        made.add_row(name, *texts, f"{before - after:.0f} s" if both else "")

    made.add_row("accuracy", f"{plain.accuracy[-1]:.1%}", f"{small.accuracy[-1]:.1%}")
    for name, clock in (("measured", "real_seconds"), ("virtual clock", "virtual_seconds")):
        before, after = getattr(plain, clock), getattr(small, clock)
        seconds(f"all rounds, {name}", before[-1], after[-1])
        seconds(f"to {target:.1%}, {name}", plain.to(target, before), small.to(target, after))
    for name, key in (("payload up", "up_bytes"), ("payload down", "down_bytes")):
        before, after = getattr(plain, key), getattr(small, key)
        made.add_row(name, size(before), size(after), f"{before / after:.1f}×")
    for name, key in (("on the sockets, up", "socket_up_bytes"), ("on the sockets, down", "socket_down_bytes")):
        before, after = getattr(plain, key), getattr(small, key)
        made.add_row(name, size(before), size(after), f"{before / after:.1f}×")
    return made


def draw(outcome: Outcome, path: Path) -> None:
    """Draws accuracy over seconds, on both clocks."""
    import altair

    rows = [
        {"run": name, "clock": clock, "seconds": when, "accuracy": reached}
        for name, run in (("FedAvg", outcome.plain), ("with gammafl", outcome.small))
        for clock, times in (("measured", run.real_seconds), ("virtual", run.virtual_seconds))
        for when, reached in zip(times, run.accuracy, strict=True)
    ]
    chart = (
        altair.Chart(altair.Data(values=rows), title=f"each SuperNode with {outcome.link}", width=520, height=300)
        .mark_line()
        .encode(
            x=altair.X("seconds:Q", title="seconds"),
            y=altair.Y("accuracy:Q", title="accuracy", axis=altair.Axis(format="%"), scale=altair.Scale(zero=False)),
            color=altair.Color("run:N", title=None),
            strokeDash=altair.StrokeDash(
                "clock:N",
                title="clock",
                legend=altair.Legend(symbolType="stroke", symbolStrokeColor="black", symbolSize=400),
            ),
        )
    )
    chart.save(path, scale_factor=1.5)


def measure(link: Link, deployment: Deployment) -> Outcome:
    common = {"poll-seconds": POLL_SECONDS, "min-nodes": NODES, "round-seconds": 600}
    common |= {"method": METHOD, "keep": KEEP, "downlink": DOWNLINK}
    names = ("gammafl", "fedavg")
    say("both at full speed, for what a round takes apart from the link")
    constants = []
    for name in names:
        free = Run(deployment, f"{name}-unshaped", name == "gammafl", rounds=CONSTANT_ROUNDS, settings=common)
        free.execute()
        constants.append(median(steps(curve(free, None).real_seconds)[1:]))  # the first one brings the app to the nodes
    say(f"{constants[0]:.1f} s and {constants[1]:.1f} s a round; now each SuperNode has {link}")
    deployment.shape(link)
    runs = [Run(deployment, name, name == "gammafl", rounds=ROUNDS, settings=common) for name in names]
    for run in runs:
        run.execute()
    deployment.shape(None)
    small, plain = (
        curve(run, replace(link, compute_seconds=constant)) for run, constant in zip(runs, constants, strict=True)
    )
    return Outcome(str(link), constants[1], constants[0], plain, small)


def main(link: Link, directory: Path) -> None:
    if min(link.up_bits_per_second, link.down_bits_per_second) < SLOWEST:
        raise InputError(f"Flower's requests would time out on {link}; give at least {show_rate(SLOWEST)} each way")
    if (directory / "superlink.log").exists():
        shutil.rmtree(directory)
    say(f"starting a SuperLink and {NODES} SuperNodes on loopback; logs in {directory}")
    with Deployment(directory, NODES, {"OMP_NUM_THREADS": "1"}) as deployment:
        outcome = measure(link, deployment)
    say("SuperLink and SuperNodes are gone")
    facts = outcome.facts()
    (directory / "result.json").write_text(json.dumps(facts, indent=2) + "\n")
    console.print(table(outcome))
    real, virtual = outcome.saved
    speed = facts["break_even_bits_per_second"]
    both = f"{outcome.plain_constant_seconds:.1f} s with FedAvg and {outcome.small_constant_seconds:.1f} s with gammafl"
    say(f"without the link a round takes {both}: Flower, training, evaluation, compression")
    say(f"saved: {real:.0f} s measured, {virtual:.0f} s by the virtual clock, {virtual / real - 1:+.0%}")
    cost = f"compression takes {1000 * outcome.extra_seconds:.0f} ms more a round, for {size(outcome.saved_bytes)} less"
    say(f"{cost} a client: above {show_rate(float(f'{speed:.2g}'))} it does not pay")
    draw(outcome, directory / "picture.png")
    say(f"picture: {directory / 'picture.png'}")


if __name__ == "__main__":
    try:
        main(Link.parse(sys.argv[1]), Path(sys.argv[2] if len(sys.argv) > 2 else "build/flower-link"))
    except (DeploymentError, InputError) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("interrupted; nothing is left running")
