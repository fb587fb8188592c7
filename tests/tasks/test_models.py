"""The paper's networks have the paper's parameter counts."""

from collections.abc import Callable

import pytest
import torch

from gammafl.tasks.augment import crop_and_flip
from gammafl.tasks.models import cnn, lecun_initialisation, logistic, torch_initialisation, vgg11s


@pytest.mark.parametrize(
    ("model", "parameters", "shape"),
    [
        (logistic(), 10_250, (2, 1, 32, 32)),
        (cnn(), 235_690, (2, 3, 32, 32)),
        (vgg11s(), 865_482, (2, 3, 32, 32)),
        (vgg11s(41), 869_481, (2, 3, 32, 32)),
    ],
    ids=["logistic", "cnn", "vgg11s", "vgg11s with 41 classes"],
)
def test_parameter_counts(model: torch.nn.Module, parameters: int, shape: tuple[int, ...]) -> None:
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert model(torch.zeros(shape)).shape[0] == 2


def test_a_cropped_image_is_a_shifted_part_of_the_padded_one_mirrored_or_not() -> None:
    torch.manual_seed(0)
    images = torch.randint(1, 256, (40, 2, 8, 8), dtype=torch.uint8)
    changed = crop_and_flip(images, padding=2)
    padded = torch.nn.functional.pad(images, (2, 2, 2, 2))
    kinds = set()
    for image, result in zip(padded, changed, strict=True):
        windows = {
            (y, x, flip): image[:, y : y + 8, x : x + 8].flip(2) if flip else image[:, y : y + 8, x : x + 8]
            for y in range(5)
            for x in range(5)
            for flip in (False, True)
        }
        kinds |= {kind for kind, window in windows.items() if torch.equal(window, result)}
    assert {flip for _, _, flip in kinds} == {False, True}
    assert len(kinds) > 10


@pytest.mark.parametrize(("initialise", "learns"), [(lecun_initialisation, True), (torch_initialisation, False)])
def test_vgg11s_learns_more_than_guessing_at_the_papers_stepsize(
    initialise: Callable[[torch.nn.Module], None], learns: bool
) -> None:
    """The best guess that does not look at the image costs the entropy of the labels; torch's default stays there."""
    torch.manual_seed(0)
    images, labels = torch.randn(10, 3, 32, 32), torch.arange(10) % 7
    shares = torch.bincount(labels) / len(labels)
    entropy = -(shares * shares.log()).sum().item()
    model = vgg11s(7)
    initialise(model)
    losses = []  # they swing on their way down, on every machine in another way
    for t in range(150):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        losses.append(loss.item())
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.sub_(parameter.grad, alpha=100 / (t + 1000))
    assert (min(losses) < 0.9 * entropy) == learns
