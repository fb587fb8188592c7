"""What every table of settings is: unknown keys are refused, values don't change, numbers are finite."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
