"""FedAVG by hand: an nn.Module, torch.optim.SGD and state dicts, as in most papers' code.

The code is neither slowed down nor tuned. One model is reused for all clients, each client gets a new optimizer,
batches are picked by index from tensors in memory instead of by a DataLoader, and the state dicts are averaged at the
end.
"""

import random
import time
from importlib.metadata import version

import torch
import work


class Plain:
    """The global state dict and the one model that every client trains in turn."""

    name = f"plain torch {version('torch')}"
    kept = 1.0

    def __init__(self, spec: work.Work) -> None:
        torch.set_num_threads(spec.threads)
        self.spec = spec
        self.data = work.clients(spec.model, spec.clients)
        self.model = work.network(spec.model)
        self.state = copy(self.model.state_dict())

    def run(self, rounds: int) -> list[float]:
        ends = []
        for _ in range(rounds):
            picked = random.sample(self.data, self.spec.participants)
            self.state = average([self.local(data) for data in picked])
            ends.append(time.perf_counter())
        return ends

    def local(self, data: work.Data) -> work.State:
        self.model.load_state_dict(self.state)
        work.train(self.model, work.batches(data, self.spec.local_steps, self.spec.batch_size))
        return copy(self.model.state_dict())

    def weights(self) -> work.State:
        return self.state


def copy(state: work.State) -> work.State:
    return {key: value.clone() for key, value in state.items()}


def average(states: list[work.State]) -> work.State:
    return {key: torch.stack([state[key] for state in states]).mean(0) for key in states[0]}


if __name__ == "__main__":
    work.serve(Plain)
