"""Digests that tell two runs of `gf.simulate` apart if an argument, such as a model, has no text that would do it."""

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
"""The number of letters of a digest."""


def with_digests(config: SimulationConfig, plan: Plan, task: TorchTask) -> SimulationConfig:
    """`config` with digests of the data and the model, and of a stepsize whose text does not define it."""
    start = task.module_with(task.initial_model(seeds.generator(plan.seed, "model")))
    digests = {"data_digest": f"{task.fingerprint():08x}", "model_digest": _model_digest(start)}
    if not isinstance(plan.stepsize, Constant | ExponentialDecay | InverseDecay):
        digests["stepsize"] = f"{config.stepsize}, digest {_stepsize_digest(plan.stepsize, plan.iterations)}"
    return config.model_copy(update=digests)


def without_addresses(text: str) -> str:
    """A repr without its memory addresses, which differ in each process."""
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def _model_digest(module: nn.Module) -> str:
    """A digest of the layers as they print, and of all weights and buffers, trained or not."""
    digest = hashlib.sha256(without_addresses(repr(module)).encode())
    for name, tensor in module.state_dict().items():
        digest.update(name.encode())
        if isinstance(tensor, torch.Tensor):  # a module may put other things into its state
            digest.update(tensor.detach().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:LETTERS]


def _stepsize_digest(stepsize: Stepsize, iterations: int) -> str:
    """A digest of γ_t at some iterations of the run, with the first and the last one."""
    some = np.unique(np.linspace(0, iterations - 1, SAMPLED_STEPSIZES).astype(int)).tolist()
    gammas = np.array([float(stepsize(t)) for t in some])
    return hashlib.sha256(gammas.tobytes()).hexdigest()[:LETTERS]
