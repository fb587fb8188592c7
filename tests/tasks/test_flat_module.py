"""A step by parts is the step."""

import copy

import torch
from torch import nn

from gammafl.tasks.flat_module import FlatModule


class Tied(nn.Module):
    """Words in, words out, by one matrix, as language models have it; one parameter is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm = nn.Embedding(11, 6), nn.LayerNorm(6)
        self.inner, self.unused = nn.Linear(6, 6), nn.Linear(2, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        inside = self.norm(self.words(tokens))
        return self.inner(torch.relu(self.inner(inside))) @ self.words.weight.T


def test_parameters_that_move_one_by_one_move_as_they_do_together() -> None:
    """Bit for bit, also where a parameter is used more than once or not at all; no gradient is left behind."""
    torch.manual_seed(0)
    module = Tied()
    together, by_parts = FlatModule(copy.deepcopy(module)), FlatModule(copy.deepcopy(module))
    for stepsize in (0.5, 0.1, 0.02):
        tokens, targets = torch.randint(11, (7,)), torch.randint(11, (7,))
        before = by_parts.weights.clone()
        for flat, step in ((together, together.step), (by_parts, by_parts.step_by_parts)):
            step(nn.functional.cross_entropy(flat.module(tokens), targets), stepsize)
        assert torch.equal(together.weights, by_parts.weights)
        assert not torch.equal(before, by_parts.weights)
        assert all(parameter.grad is None for parameter in by_parts.module.parameters())
