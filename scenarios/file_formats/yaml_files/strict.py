"""The base model of YAML files."""

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """Unknown keys are errors; values are not changed after they are read."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
