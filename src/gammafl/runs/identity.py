"""What tells two runs of `gf.simulate` apart whose arguments have no text of their own: digests."""

import hashlib
import re

import numpy as np
import torch
from torch import nn

from gammafl import seeds
from gammafl.config.simulation import SimulationConfig
from gammafl.core.stepsizes import Constant, ExponentialDecay, InverseDecay, Stepsize
from gammafl.federated.plan import Plan
from gammafl.tasks.torch_task import TorchTask

SAMPLED_STEPSIZES = 1000
LETTERS = 16
"""Of a digest."""


def with_digests(config: SimulationConfig, plan: Plan, task: TorchTask) -> SimulationConfig:
    """`config` with digests of the data, of the model and, where its text does not say all, of the stepsize."""
    start = task.module_with(task.initial_model(seeds.generator(plan.seed, "model")))
    digests = {"data_digest": f"{task.fingerprint():08x}", "model_digest": _model_digest(start)}
    if not isinstance(plan.stepsize, Constant | ExponentialDecay | InverseDecay):
        digests["stepsize"] = f"{config.stepsize}, digest {_stepsize_digest(plan.stepsize, plan.iterations)}"
    return config.model_copy(update=digests)


def without_addresses(text: str) -> str:
    """A repr without addresses in memory, which are others in each process."""
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def _model_digest(module: nn.Module) -> str:
    """Of the layers as they print, and of all weights and buffers, trained or not."""
    digest = hashlib.sha256(without_addresses(repr(module)).encode())
    for name, tensor in module.state_dict().items():
        digest.update(name.encode())
        if isinstance(tensor, torch.Tensor):  # a module may put other things into its state
            digest.update(tensor.detach().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:LETTERS]


def _stepsize_digest(stepsize: Stepsize, iterations: int) -> str:
    """Of γ_t at some iterations of the run, the first and the last among them."""
    some = np.unique(np.linspace(0, iterations - 1, SAMPLED_STEPSIZES).astype(int)).tolist()
    gammas = np.array([float(stepsize(t)) for t in some])
    return hashlib.sha256(gammas.tobytes()).hexdigest()[:LETTERS]
