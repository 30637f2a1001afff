"""`[runtime.kubernetes]`: what pods of instances get besides what Paddock gives them itself."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue

LABEL_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
OURS = ("paddock.io/", "app.kubernetes.io/")


def _keys(value: dict[str, str]) -> dict[str, str]:
    for key in value:
        if not LABEL_KEY.fullmatch(key):
            raise ValueError(f"'{key}' is no name of a label or annotation")
    return value


def _labels(value: dict[str, str]) -> dict[str, str]:
    for key, text in _keys(value).items():
        if not LABEL_VALUE.fullmatch(text):
            raise ValueError(f"'{text}' is no value of the label {key}")
    return value


def _not_ours(value: dict[str, str]) -> dict[str, str]:
    for key in value:
        if key == "app" or key.startswith(OURS):
            raise ValueError(f"the name {key} is Paddock's own")
    return value


class Toleration(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""
    toleration_seconds: int | None = None

    def as_spec(self) -> dict[str, JsonValue]:
        told: dict[str, JsonValue] = {"operator": self.operator, "tolerationSeconds": self.toleration_seconds}
        told |= {"key": self.key, "value": self.value, "effect": self.effect}
        return {name: value for name, value in told.items() if value not in ("", None)}


class PodSettings(BaseModel):
    """All that may be left out. `affinity` is as in a pod's spec."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    node_selector: Annotated[dict[str, str], AfterValidator(_labels)] = Field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    affinity: dict[str, JsonValue] = Field(default_factory=dict)
    priority_class: str | None = None
    runtime_class: str | None = None
    image_pull_secrets: tuple[str, ...] = ()
    labels: Annotated[dict[str, str], AfterValidator(_labels), AfterValidator(_not_ours)] = Field(default_factory=dict)
    annotations: Annotated[dict[str, str], AfterValidator(_keys), AfterValidator(_not_ours)] = Field(
        default_factory=dict
    )
