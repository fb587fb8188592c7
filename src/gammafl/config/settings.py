"""The base of all tables of settings: it refuses unknown keys, and its values are constant and finite."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
