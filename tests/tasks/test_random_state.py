"""A thread's own random state of torch: the same numbers as torch's one state gives, and nobody else's."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from gammafl.tasks.fast.random_state import drawing_from

X = torch.linspace(-1, 1, 5 * 7 * 16).view(5, 7, 16)
functional = nn.functional


def make(kind: type[nn.Module], *arguments: int, **options: float) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return kind(*arguments, **options).train()


LSTM = make(nn.LSTM, 16, 4, 2, dropout=0.5)
GRU = make(nn.GRU, 16, 4, 2, dropout=0.5)
TRANSFORMER = make(nn.TransformerEncoderLayer, 16, 2, 32, dropout=0.3)


def seeded_by_hand() -> torch.Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        fixed = torch.rand(4)
    return torch.cat([fixed, torch.rand(4)])


def checkpointed() -> torch.Tensor:
    """The gradient of a part that is computed again in the backward pass, with the state that it had."""
    x = X.clone().requires_grad_()
    y = checkpoint(lambda x: functional.dropout(x.exp(), 0.5).square(), x, use_reentrant=False)
    (gradient,) = torch.autograd.grad(y.sum(), [x])
    assert torch.equal(gradient != 0, y != 0)
    return gradient


def gradient_of_dropout() -> torch.Tensor:
    x = X.clone().requires_grad_()
    y = functional.dropout(x + 2, 0.5)
    (gradient,) = torch.autograd.grad(y.sum(), [x])
    assert torch.equal(gradient != 0, y != 0)
    return gradient


DRAWS: dict[str, Callable[[], torch.Tensor]] = {
    "dropout": lambda: functional.dropout(X, 0.5),
    "gradient of dropout": gradient_of_dropout,
    "alpha dropout": lambda: functional.alpha_dropout(X, 0.5, training=True),
    "channels dropped": lambda: functional.dropout1d(X, 0.5),
    "native dropout": lambda: torch.native_dropout(X, 0.5, True)[0],
    "attention": lambda: functional.scaled_dot_product_attention(X, X, X, dropout_p=0.5),
    "transformer": lambda: TRANSFORMER(X),
    "lstm": lambda: LSTM(X)[0],
    "gru": lambda: GRU(X)[0],
    "rand": lambda: torch.rand(9),
    "randn_like": lambda: torch.randn_like(X),
    "randint": lambda: torch.randint(99, (9,)),
    "randperm": lambda: torch.randperm(99),
    "normal": lambda: torch.normal(X, 1.0),
    "bernoulli": lambda: torch.bernoulli(X.abs()),
    "multinomial": lambda: torch.multinomial(X[0].abs(), 3),
    "poisson": lambda: torch.poisson(X.abs()),
    "uniform_": lambda: torch.empty(9).uniform_(),
    "gumbel": lambda: functional.gumbel_softmax(X),
    "gamma": lambda: torch.distributions.Gamma(1.0, 2.0).sample((9,)),
    "rrelu": lambda: functional.rrelu(X, training=True),
    "pooling": lambda: functional.fractional_max_pool2d(X, 2, output_size=3),
    "the shared generator by name": lambda: torch.rand(9, generator=torch.default_generator),
    "seeded by hand": seeded_by_hand,
    "checkpoint": checkpointed,
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_the_numbers_are_those_of_torchs_one_state_and_that_state_is_left_alone(
    draw: Callable[[], torch.Tensor],
) -> None:
    own = torch.Generator().manual_seed(5)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        expected, state = draw(), torch.get_rng_state()
        torch.manual_seed(77)
        before = torch.get_rng_state()
        with drawing_from(own):
            drawn = draw()
        assert torch.equal(drawn, expected)
        assert torch.equal(own.get_state(), state)
        assert torch.equal(torch.get_rng_state(), before)


def test_a_generator_of_somebodys_own_is_used_as_ever() -> None:
    with drawing_from(torch.Generator().manual_seed(5)):
        drawn = torch.rand(9, generator=torch.Generator().manual_seed(3))
    assert torch.equal(drawn, torch.rand(9, generator=torch.Generator().manual_seed(3)))


def test_threads_at_work_at_the_same_time_draw_each_from_its_own() -> None:
    together = threading.Barrier(2)

    def draws(seed: int) -> torch.Tensor:
        numbers = []
        with drawing_from(torch.Generator().manual_seed(seed)):
            for _ in range(20):
                together.wait(60)
                numbers.append(torch.rand(9))
        return torch.stack(numbers)

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(draws, (3, 4)))
    for seed, numbers in zip((3, 4), found, strict=True):
        generator = torch.Generator().manual_seed(seed)
        assert torch.equal(numbers, torch.stack([torch.rand(9, generator=generator) for _ in range(20)]))


def test_torch_is_as_it_was_afterwards_even_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), drawing_from(torch.Generator()):
        raise ZeroDivisionError
    assert vars(torch.random)["default_generator"] is torch.default_generator
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        assert torch.equal(torch.rand(9), torch.rand(9, generator=torch.Generator().manual_seed(5)))
