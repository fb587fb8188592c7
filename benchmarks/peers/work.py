"""What the benchmark's peers share: the networks, the clients' data, one client's training, and the protocol.

The peers run in their own environment, without gammafl, and are started by path. So this file repeats the networks, and
the peers import it as a sibling.

One round is the same work for every peer: `participants` of `clients` clients are picked at random, each starts from
the global model and makes `local_steps` steps of plain SGD on random batches of its own samples, and the server takes
the plain mean of the models. Nothing is evaluated.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

LEARNING_RATE = 0.05
SAMPLES = 200
"""The number of samples of each client."""
CLASSES = 10
WARM_UP = 2
"""The number of rounds at the start of every request that are not counted."""
VGG11S = (32, "M", 64, "M", 128, 128, "M", 128, 128, "M", 128, 128, "M")
"""Channels of the 3×3 convolutions; M halves the image."""

Data = tuple[Tensor, Tensor]
"""Inputs and labels."""
State = dict[str, Tensor]


@dataclass(frozen=True)
class Work:
    """The work of a contender; its command line has it as a JSON object."""

    model: str
    clients: int
    participants: int
    local_steps: int
    batch_size: int
    threads: int


def network(name: str) -> nn.Module:
    """The named network, with the same initial weights in every peer."""
    torch.manual_seed(0)
    return {"logistic": logistic, "cnn": cnn, "vgg11s": vgg11s, "lenet": LeNet, "resnet": ResNet}[name]()


def logistic() -> nn.Module:
    """10,250 parameters."""
    return nn.Sequential(nn.Flatten(), nn.Linear(1024, CLASSES))


def cnn() -> nn.Module:
    """235,690 parameters."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(800, 256),
        nn.ReLU(),
        nn.Linear(256, CLASSES),
    )


def vgg11s() -> nn.Module:
    """865,482 parameters."""

    def features() -> Iterator[nn.Module]:
        channels = 3
        for width in VGG11S:
            if isinstance(width, str):
                yield nn.MaxPool2d(2)
            else:
                yield nn.Conv2d(channels, width, 3, padding=1)
                yield nn.ReLU()
                channels = width

    head = [nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, CLASSES)]
    return nn.Sequential(*features(), nn.Flatten(), *head)


class LeNet(nn.Module):
    """LeNet-5 for colour images, as somebody would write it by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.classifier = nn.Sequential(
            nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, CLASSES)
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.features(images).flatten(1))


class Residual(nn.Module):
    """Two convolutions and a shortcut around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.GroupNorm(4, outputs), nn.GroupNorm(4, outputs)])
        self.around = nn.Identity() if stride == 1 else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        inner = functional.relu(self.norms[0](self.first(images)))
        return functional.relu(self.around(images) + self.norms[1](self.second(inner)))


class ResNet(nn.Module):
    """A small ResNet as somebody would write it by hand, with norms that have no running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.GroupNorm(4, 16), nn.ReLU())
        self.blocks = nn.Sequential(Residual(16, 16, 1), Residual(16, 32, 2), Residual(32, 64, 2))
        self.last = nn.Linear(64, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        return self.last(self.blocks(self.stem(images)).mean((2, 3)))


def clients(model: str, count: int) -> list[Data]:
    """Every client's samples, already normalised and in memory: no peer pays for reading or preparing data."""
    channels = 1 if model == "logistic" else 3

    def client(number: int) -> Data:
        generator = torch.Generator().manual_seed(number)
        inputs = torch.randn(SAMPLES, channels, 32, 32, generator=generator)
        return inputs, torch.randint(CLASSES, (SAMPLES,), generator=generator)

    return [client(number) for number in range(count)]


def batches(data: Data, steps: int, size: int) -> Iterator[Data]:
    """Random batches of a client's samples, picked by index."""
    inputs, labels = data
    for _ in range(steps):
        picked = torch.randint(len(labels), (size,))
        yield inputs[picked], labels[picked]


def train(model: nn.Module, samples: Iterable[Data]) -> None:
    """One client's local training, as written by hand, for peers without their own training loop."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    for inputs, labels in samples:
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()


class Peer(Protocol):
    """What each script of a peer implements."""

    name: str
    """The name of the peer, with its version."""

    @property
    def kept(self) -> float:
        """The share of an update that was sent so far."""

    def run(self, rounds: int) -> list[float]:
        """Runs this number of rounds and returns time.perf_counter() at the end of each."""

    def weights(self) -> State:
        """The global model."""


def serve(make: Callable[[Work], Peer]) -> None:
    """Answers requests on stdout until stdin ends. Everything that a library prints goes to stderr.

    A request is a number of rounds. `WARM_UP` further rounds run before them, and only the time between the ends of
    rounds counts. So no figure contains a peer's start-up, first allocation or first message.
    """
    work = Work(**json.loads(sys.argv[1]))
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        peer = make(work)
        print(json.dumps({"ready": True, "name": peer.name}), file=answers, flush=True)
        check = os.environ.get("CHECK") == "1"
        for line in sys.stdin:
            rounds = int(line)
            before = peer.weights() if check else {}
            ends = peer.run(WARM_UP + rounds)
            if len(ends) != WARM_UP + rounds:
                raise RuntimeError(f"{len(ends)} rounds were run, not {WARM_UP + rounds}")
            if check:
                report(work, before, peer.weights())
                check = False
            seconds = ends[-1] - ends[WARM_UP - 1]
            print(json.dumps({"rounds": rounds, "seconds": seconds, "kept": peer.kept}), file=answers, flush=True)


@torch.no_grad()
def report(work: Work, before: State, after: State) -> None:
    """Prints to stderr how far the rounds moved the global model and its loss, to show that they did real work."""
    model, data = network(work.model), clients(work.model, work.clients)

    def loss(state: State) -> float:
        model.load_state_dict(state)
        return sum(functional.cross_entropy(model(inputs), labels).item() for inputs, labels in data) / len(data)

    moved = sum((after[key] - before[key]).square().sum() for key in before) ** 0.5
    print(f"loss {loss(before):.4f} -> {loss(after):.4f}, weights moved by {moved:.4f}", file=sys.stderr)
