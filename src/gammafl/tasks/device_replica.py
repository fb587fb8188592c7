"""A copy of a module that trains on a device, or in another precision, with torch's own operations.

One client trains at a time, which is enough to keep a device busy. Model, samples and updates are on the device. After
a client's steps, only its mean loss and the largest magnitude of its update are copied to the host, together.
"""

import copy
import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from gammafl.config.schema import Precision
from gammafl.core.device.crossing import to_host
from gammafl.core.device.torch_vectors import TorchVector
from gammafl.core.errors import require
from gammafl.federated.task import LocalUpdate
from gammafl.tasks.fast.random_state import drawing_from
from gammafl.tasks.fast.replicas import Replica
from gammafl.tasks.flat_module import Buffers, FlatModule
from gammafl.tasks.nested import Nested
from gammafl.tasks.objective import Objective
from gammafl.tasks.optimizers import LocalRule, plain_rule

KINDS = {"bf16": torch.bfloat16, "f16": torch.float16}


class DeviceReplica(Replica):
    """A copy of `module` on `device`. `begin` and `update` take the model as a vector on this device."""

    def __init__(
        self,
        module: nn.Module,
        objective: Objective,
        buffers: Buffers,
        rule: LocalRule | None,
        device: torch.device,
        precision: Precision = "f32",
    ) -> None:
        self._device, self._precision = device, precision
        self._flat = FlatModule(copy.deepcopy(module).to(device), buffers)
        self._chain = None
        self._objective = objective
        self._rule = plain_rule() if precision == "f16" and rule is None else rule
        self._take_step = self._flat.step
        self.generator = torch.Generator()
        self._update: TorchVector | None = None
        self._sum: torch.Tensor | None = None
        self._steps = 0

    def begin(self, model: Any, random_state: torch.Tensor, stepsize: float) -> None:
        self._flat.module.train()
        self._flat.load(model.tensor)
        self.generator.set_state(random_state)
        self._seed_device()
        if self._rule is not None:
            scaled = self._device.type if self._precision == "f16" else None
            self._take_step = self._rule.begin(list(self._flat.parameters.values()), stepsize, scaled).take
        self._sum, self._steps = None, 0

    def step(self, inputs: Nested, targets: Nested, stepsize: float) -> None:
        with self._autocast():
            loss, _ = self._objective(self._flat.module, inputs, targets)
        self._take_step(loss, stepsize)
        number = loss.detach().float().reshape(())  # some losses are vectors of one element
        self._sum = number if self._sum is None else self._sum + number
        self._steps += 1

    def update(self, model: Any) -> LocalUpdate:
        assert self._sum is not None, "at least one step"
        if self._update is None:
            self._update = TorchVector(torch.empty_like(model.tensor))
        difference = self._flat.difference_on_device(model.tensor, self._update.tensor)
        loss, largest = to_host(torch.stack([self._sum / self._steps, difference])).tolist()
        return LocalUpdate(self._update, loss, largest)  # type: ignore[arg-type]

    def prepare(self, model: Any) -> None:
        self._flat.load(model.tensor)
        self._flat.module.eval()

    @torch.no_grad()
    def evaluate(self, inputs: Nested, targets: Nested, seed: int) -> tuple[torch.Tensor, Any]:
        self._flat.reset_buffers()
        self.generator.manual_seed(seed)
        self._seed_device()
        with drawing_from(self.generator), self._autocast():
            return self._objective(self._flat.module, inputs, targets)

    def _autocast(self) -> AbstractContextManager[Any]:
        if self._precision == "f32":
            return nullcontext()
        return torch.autocast(self._device.type, KINDS[self._precision])

    def _seed_device(self) -> None:
        """Seeds the device's random numbers, such as those for dropout, from the CPU's random state."""
        if self._device.type != "cpu":
            seed_device(self._device, int(torch.randint(2**62, (), generator=self.generator, device="cpu")))


def require_precision(device: torch.device, precision: Precision) -> None:
    """Refuses a precision that torch's autocast does not support there. It would only warn, and compute in float32."""
    if precision == "f32":
        return
    one = torch.ones(1, 1, device=device)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with torch.autocast(device.type, KINDS[precision]):
                fits = (one @ one).dtype == KINDS[precision]
    except RuntimeError:
        fits = False
    require(fits, f"torch {torch.__version__} can't compute in {precision} on {device}: leave out precision")


def seed_device(device: torch.device, seed: int) -> None:
    """Seeds a device with its backend's module, such as `torch.cuda`. It need not be the current device."""
    backend = getattr(torch, device.type)
    getattr(backend, "manual_seed_all", backend.manual_seed)(seed)
