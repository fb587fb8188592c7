"""The paper's networks (Table I), by parameter count."""

from collections.abc import Callable, Iterator

from torch import nn

VGG11S = (32, "M", 64, "M", 128, 128, "M", 128, 128, "M", 128, 128, "M")
"""Channels of the 3×3 convolutions; M halves the image."""


def logistic(classes: int = 10) -> nn.Module:
    """Logistic: 32×32 grey input, 10,250 parameters."""
    return nn.Sequential(nn.Flatten(), nn.Linear(1024, classes))


def cnn(classes: int = 10) -> nn.Module:
    """CNN: 32×32 colour input, 235,690 parameters."""
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
        nn.Linear(256, classes),
    )


def vgg11s(classes: int = 10) -> nn.Module:
    """VGG11s: 32×32 colour input, no batch norm, no dropout; 865,482 parameters with 10 classes."""

    def features() -> Iterator[nn.Module]:
        channels = 3
        for width in VGG11S:
            if isinstance(width, str):
                yield nn.MaxPool2d(2)
            else:
                yield nn.Conv2d(channels, width, 3, padding=1)
                yield nn.ReLU()
                channels = width

    head = [nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, classes)]
    return nn.Sequential(*features(), nn.Flatten(), *head)


MODELS: dict[str, Callable[[int], nn.Module]] = {"logistic": logistic, "cnn": cnn, "vgg11s": vgg11s}


def torch_initialisation(module: nn.Module) -> None:
    """torch's default initialisation of every layer, from torch's current random state."""
    for layer in module.modules():
        reset = getattr(layer, "reset_parameters", None)
        if callable(reset):
            reset()


def lecun_initialisation(module: nn.Module) -> None:
    """LeCun's normal weights, with variance 1/inputs, and zero biases.

    VGG11s has no batch norm. With torch's default, it does not start to learn; with the variance of He et al., which is
    twice as large, it diverges at the paper's stepsize.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="linear")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


INITIALISERS: dict[str, Callable[[nn.Module], None]] = {"torch": torch_initialisation, "lecun": lecun_initialisation}
