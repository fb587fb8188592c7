"""What identifies a run of `gf.simulate`: its arguments, and digests of arguments that are not plain values."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationError

from gammafl.config.messages import in_one_line
from gammafl.config.schema import Faults, Precision, RunConfig, Sampler
from gammafl.config.settings import Settings
from gammafl.core.errors import InputError

AtLeastOne = Annotated[int, Field(ge=1)]


class SimulationConfig(Settings):
    """The arguments of a call. A run directory has them in config.toml, and can only be resumed with the same ones."""

    model_config = ConfigDict(strict=True)

    task: str
    method: str
    method_parts: str
    downlink: str = "full"
    link: str | None = None
    budget: dict[str, str] | None = None
    stepsize: str
    seed: int = Field(ge=0)
    iterations: AtLeastOne
    local_steps: AtLeastOne
    clients: AtLeastOne
    participation: float = Field(gt=0, le=1)
    batch_size: AtLeastOne
    sampler: Sampler
    weights: Literal["paper", "normalized"]
    loss: str
    optimizer: str = "sgd"
    proximal: float = Field(0.0, ge=0)
    server_optimizer: str = "none"
    metric: str
    higher_is_better: bool = True
    buffers: str
    fast: bool = True
    device: str = "cpu"
    precision: Precision = "f32"
    averaging: Literal["tail", "exponential", "none"]
    evaluate_every: AtLeastOne
    data_digest: str = ""
    model_digest: str = ""
    faults: Faults = Faults()
    limits: dict[str, int | float] = Field({})
    privacy: dict[str, float] = Field({})

    @property
    def participants(self) -> int:
        """|S|: the number of clients in a round, at least one."""
        return max(1, round(self.participation * self.clients))


AnyConfig = RunConfig | SimulationConfig
"""The configuration of any run directory."""

DIGESTS = {
    "method_parts": "another method",
    "data_digest": "other data",
    "model_digest": "a model with other layers or initial weights",
}
"""Digest → what has changed if it differs."""


def make_simulation_config(table: dict[str, Any]) -> SimulationConfig:
    """The configuration from these arguments. An `InputError` of one line if one is wrong."""
    try:
        return SimulationConfig.model_validate(table)
    except ValidationError as error:
        raise InputError(in_one_line(error, SimulationConfig)) from None
