"""Values of a profile that may be uncertain: a number is certain, a mapping states its spread and where it is from."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import inf
from statistics import NormalDist
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from app.manifests.model import WrittenSpec
from app.manifests.quantities import (
    Count,
    Exponent,
    Fraction,
    Moment,
    NotNegative,
    Positive,
    SmPercent,
    rule_fault,
)
from app.manifests.spec import Spec

Q90 = 0.9
MEAN_QUANTILE = 0.5
Source: TypeAlias = Literal["declared", "measured", "learned"]


class UncertainValue(Spec):
    """A value with its spread."""

    mean: NotNegative = Field(description="The expected value")
    q90: NotNegative = Field(description="What it stays below with a probability of 0.9; at least the mean")
    n: Count | None = Field(None, description="How many measurements it is from")
    at: Moment | None = Field(None, description="When it was measured or learned")
    source: Source = Field("declared", description="Where it is from")

    @model_validator(mode="after")
    def _check_order(self) -> UncertainValue:
        if self.q90 < self.mean:
            raise rule_fault(f"q90 {self.q90:g} is below the mean {self.mean:g}", "a q90 of at least the mean")
        return self


class UncertainPositive(UncertainValue):
    """A value over 0 with its spread."""

    mean: Positive = Field(description="The expected value")
    q90: Positive = Field(description="What it stays below with a probability of 0.9; at least the mean")


class UncertainFraction(UncertainValue):
    """A value 0..1 with its spread."""

    mean: Fraction = Field(description="The expected value")
    q90: Fraction = Field(description="What it stays below with a probability of 0.9; at least the mean")


class UncertainExponent(UncertainValue):
    """An exponent with its spread."""

    mean: Exponent = Field(description="The expected value")
    q90: Exponent = Field(description="What it stays below with a probability of 0.9; at least the mean")


FIELDS = frozenset(UncertainValue.model_fields)


def is_uncertain(value: object) -> bool:
    """Returns True for a value with a spread; the keys of a table are shares or batches."""
    return isinstance(value, dict) and not FIELDS.isdisjoint(value)


def _form(value: object) -> str:
    return "<uncertain>" if value.__class__ is dict else "<number>"  # of every cell of a table: it has to be quick


def _form_or_table(value: object) -> str:
    if isinstance(value, dict) and not is_uncertain(value):
        return "<table>"
    return _form(value)


PositiveValue: TypeAlias = Annotated[
    Annotated[Positive, Tag("<number>")] | Annotated[UncertainPositive, Tag("<uncertain>")], Discriminator(_form)
]
NotNegativeValue: TypeAlias = Annotated[
    Annotated[NotNegative, Tag("<number>")] | Annotated[UncertainValue, Tag("<uncertain>")], Discriminator(_form)
]
FractionValue: TypeAlias = Annotated[
    Annotated[Fraction, Tag("<number>")] | Annotated[UncertainFraction, Tag("<uncertain>")], Discriminator(_form)
]
ExponentValue: TypeAlias = Annotated[
    Annotated[Exponent, Tag("<number>")] | Annotated[UncertainExponent, Tag("<uncertain>")], Discriminator(_form)
]


def _not_rising(curve: dict[int, float | UncertainPositive]) -> dict[int, float | UncertainPositive]:
    points = sorted(curve.items())
    for (below, slow), (above, fast) in pairwise(points):
        for name, one, other in (("latency", _mean(slow), _mean(fast)), ("the q90 of latency", _q90(slow), _q90(fast))):
            if other > one:
                raise rule_fault(
                    f"{name} rises with SM%: {one:g} ms at {below} % but {other:g} ms at {above} %",
                    "latency that stays or falls as SM% grows",
                )
    return curve


def _mean(value: float | UncertainValue) -> float:
    return value.mean if isinstance(value, UncertainValue) else value


def _q90(value: float | UncertainValue) -> float:
    return value.q90 if isinstance(value, UncertainValue) else value


Latencies: TypeAlias = Annotated[
    dict[SmPercent, PositiveValue], Field(min_length=1), AfterValidator(_not_rising)
]  # SM% -> milliseconds
OnePressure: TypeAlias = Annotated[
    Annotated[Fraction, Tag("<number>")]
    | Annotated[UncertainFraction, Tag("<uncertain>")]
    | Annotated[dict[SmPercent, FractionValue], Field(min_length=1), Tag("<table>")],
    Discriminator(_form_or_table),
]


class PressuresSpec(Spec):
    """What a resident does to its neighbours by each thing that they share."""

    compute: OnePressure = Field(0.0, description="On SMs and their caches, 0..1; one value, or by SM%")
    bandwidth: OnePressure = Field(0.0, description="On the bandwidth of memory, 0..1; one value, or by SM%")


class SensitivitiesSpec(Spec):
    """The slowdown of a resident by its neighbours' pressure on each thing that they share."""

    compute: NotNegativeValue = Field(0, description="Slowdown per unit of their pressure on compute")
    bandwidth: NotNegativeValue = Field(0, description="Slowdown per unit of their pressure on bandwidth")


PARTS = tuple(PressuresSpec.model_fields)
FIELDS_OF = {"<uncertain>": FIELDS, "<pair>": PARTS}


def is_pair(value: object) -> bool:
    """Returns True for a pressure or sensitivity that is stated for compute and bandwidth apart."""
    return isinstance(value, dict) and not value.keys().isdisjoint(PARTS)


def _form_or_pair(value: object) -> str:
    return "<pair>" if _is_meant_as_pair(value) else _form(value)


def _form_table_or_pair(value: object) -> str:
    return "<pair>" if _is_meant_as_pair(value) else _form_or_table(value)


def _is_meant_as_pair(value: object) -> bool:
    """Returns True for a pair, and where all keys are words, but none of a spread: they may be misspelt parts."""
    if not isinstance(value, dict) or not value:
        return False
    return is_pair(value) or (not is_uncertain(value) and all(str(key)[:1].isalpha() for key in value))


Pressure: TypeAlias = Annotated[
    Annotated[Fraction, Tag("<number>")]
    | Annotated[UncertainFraction, Tag("<uncertain>")]
    | Annotated[dict[SmPercent, FractionValue], Field(min_length=1), Tag("<table>")]
    | Annotated[PressuresSpec, Tag("<pair>")],
    Discriminator(_form_table_or_pair),
]
Sensitivity: TypeAlias = Annotated[
    Annotated[NotNegative, Tag("<number>")]
    | Annotated[UncertainValue, Tag("<uncertain>")]
    | Annotated[SensitivitiesSpec, Tag("<pair>")],
    Discriminator(_form_or_pair),
]
Watts: TypeAlias = Annotated[
    Annotated[NotNegative, Tag("<number>")]
    | Annotated[UncertainValue, Tag("<uncertain>")]
    | Annotated[dict[SmPercent, NotNegativeValue], Field(min_length=1), Tag("<table>")],
    Discriminator(_form_or_table),
]


def value_at(value: Any, quantile: float) -> float:
    """Returns a quantile of a value as it was written: normal on the logarithm, through the mean at 0.5 and q90."""
    if not isinstance(value, dict):
        return float(value)
    mean, upper = float(value["mean"]), float(value["q90"])
    if mean == upper or quantile in (MEAN_QUANTILE, Q90):
        return upper if quantile == Q90 else mean
    steps = NormalDist().inv_cdf(quantile) / NormalDist().inv_cdf(Q90)
    return float(mean * (upper / mean) ** steps) if mean > 0.0 else upper * max(0.0, steps)


# Of a powerExponent the lower values are the unfavourable ones: less is saved at lower clocks.
FALLING = frozenset({"powerExponent"})
SCALARS = frozenset(
    {
        "cpuCores",
        "hostMemoryGib",
        "sensitivity",
        "clockExponent",
        "powerExponent",
        "startSeconds",
        "memoryGib",
        "overheadGib",
    }
)
TABLES = frozenset({"pressure", "powerW", "memoryGib"})
MOST = {"pressure": 1.0}


def profile_at(profile: WrittenSpec, quantile: float) -> WrittenSpec:
    """Returns the profile, of a model or in a job, with numbers only: each the quantile of its value."""
    plain = dict(profile)
    for field, value in profile.items():
        if not isinstance(value, dict):
            continue
        if field == "iteration":
            plain[field] = {
                degree: {name: value_at(item, quantile) for name, item in cost.items()}
                for degree, cost in value.items()
            }
        elif field == "latencyMs":
            plain[field] = {batch: _falling(curve, quantile) for batch, curve in value.items()}
        elif is_pair(value):
            plain[field] = {part: _plain(field, item, quantile) for part, item in value.items()}
        elif field in SCALARS | TABLES:
            plain[field] = _plain(field, value, quantile)
    return plain


def _plain(field: str, value: Any, quantile: float) -> Any:
    """Returns this quantile of a value, or of each value of a table."""
    most = MOST.get(field, inf)
    if is_uncertain(value):
        return min(value_at(value, 1.0 - quantile if field in FALLING else quantile), most)
    if isinstance(value, dict) and any(item.__class__ is dict for item in value.values()):
        return {key: min(value_at(item, quantile), most) for key, item in value.items()}
    return value


def _falling(curve: WrittenSpec, quantile: float) -> Mapping[str, float]:
    """Returns a curve of latencies; above q90 the spreads could let it rise with SM%, so it is raised to the left."""
    if not any(value.__class__ is dict for value in curve.values()):
        return curve
    found: dict[str, float] = {}
    least = 0.0
    for share in sorted(curve, key=int, reverse=True):
        least = max(least, value_at(curve[share], quantile))
        found[share] = least
    return found
