"""The paper's networks (Table I), by parameter count."""

from torch import nn


def logistic(inputs: int = 1024, classes: int = 10) -> nn.Module:
    """Logistic: 32×32 grey input, Linear(1024, 10), 10,250 parameters."""
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, classes))
