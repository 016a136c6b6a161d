"""Specs that the platform team declares: GPU types, nodes, the policy and the tenants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag

from app.manifests.goals import CarbonSpec, Objective, carbon_without_intensity
from app.manifests.model import JSON
from app.manifests.quantities import (
    LARGEST,
    Count,
    Fraction,
    Name,
    NotNegative,
    Positive,
    Purchase,
    Risk,
    Word,
    Words,
    distinct,
)
from app.manifests.spec import Contradiction, Spec, number
from app.manifests.words import Mode


class Price(Spec):
    """The price of a GPU in one region for one kind of purchase."""

    region: Word = Field("default", description="Region of the node")
    purchase: Purchase = Field("onDemand", description="How the node is paid for")
    per_hour: Positive = Field(description="Price of one GPU for an hour")


class GpuTypeSpec(Spec):
    """A kind of GPU: memory, SMs, price, power, clocks."""

    memory_gib: Positive = Field(description="Memory of one GPU")
    sm_count: Count = Field(description="Streaming multiprocessors")
    price_per_hour: Positive = Field(description="Price of one GPU for an hour where `prices` names none")
    idle_w: NotNegative = Field(description="Watts of an idle GPU")
    max_w: Positive = Field(description="Watts a GPU may draw at most")
    clocks_mhz: Annotated[list[Positive], Field(min_length=1, max_length=1_000), distinct] = Field(
        description="SM clocks that can be set, in any order; profiles are taken at the highest"
    )
    prices: list[Price] | None = Field(
        None, min_length=1, max_length=1_000, description="Prices by region and way of paying"
    )
    rentable: Annotated[int, Field(ge=0, le=int(LARGEST))] = Field(
        0, description="How many more of these GPUs could be rented"
    )
    nvlink_group: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        None, description="How many GPUs of a node are linked with each other, counted from its first; all if left out"
    )
    nvlink_gbit: Positive | None = Field(
        None, description="Gbit/s that NVLink carries from one GPU to those linked with it; for `size`, as all below"
    )
    pcie_gbit: Positive | None = Field(None, description="Gbit/s that PCIe carries from one GPU to others of its node")
    network_gbit: Positive | None = Field(
        None, description="Gbit/s of the network from node to node for each GPU; `size --link-gbit` if left out"
    )
    network_price_per_gib: NotNegative = Field(
        0, description="Price of sending a GiB from a node of this type to another node"
    )

    @classmethod
    def contradictions(cls, spec: Mapping[str, JSON]) -> Iterator[Contradiction]:
        idle, most = number(spec.get("idleW")), number(spec.get("maxW"))
        if idle is not None and most is not None and idle > most:
            yield Contradiction("maxW", f"maxW {most:g} is less than idleW {idle:g}", f"at least {idle:g}", most)
        prices = spec.get("prices")
        earlier: set[tuple[str, str]] = set()
        for index, price in enumerate(prices if isinstance(prices, list) else ()):
            if isinstance(price, dict):
                where = (str(price.get("region", "default")), str(price.get("purchase", "onDemand")))
                if where in earlier:
                    message = f"the price of {where[1]} in region {where[0]} is given twice"
                    yield Contradiction(f"prices[{index}]", message, "one price for each region and purchase")
                earlier.add(where)


def _form(value: object) -> str:
    return "<list>" if isinstance(value, list) else "<number>"


CapW: TypeAlias = Annotated[
    Annotated[Positive, Tag("<number>")]
    | Annotated[list[Positive], Field(min_length=1, max_length=100_000), Tag("<list>")],
    Discriminator(_form),
]


class NodeSpec(Spec):
    """A machine with GPUs of one type."""

    gpu_type: Name = Field(description="GpuType of all its GPUs")
    gpus: Annotated[int, Field(ge=1, le=100_000)] = Field(description="How many GPUs it has")
    cpu_cores: NotNegative = Field(description="CPU cores that instances may share")
    memory_gib: NotNegative = Field(description="Host memory that instances may share")
    region: Word = Field("default", description="Region, for prices")
    purchase: Purchase = Field("onDemand", description="How it is paid for")
    templates: Words | None = Field(None, description="Templates that it offers; all if left out")
    pool: Name | None = Field(None, description="Pool that it was rented from; its planner gives it back")
    nvlink_group: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        None, description="How many of its GPUs are linked with each other; as its GpuType says if left out"
    )
    cap_w: CapW | None = Field(
        None,
        description="Watts that each GPU may draw at most, one number for all or a list with one for each in their "
        "order; over idleW and at most maxW of its GpuType, which is the limit if left out",
    )

    @classmethod
    def contradictions(cls, spec: Mapping[str, JSON]) -> Iterator[Contradiction]:
        caps, gpus = spec.get("capW"), number(spec.get("gpus"))
        if isinstance(caps, list) and caps and gpus is not None and len(caps) != gpus:
            message = f"capW lists {len(caps)} caps for {gpus:g} GPUs"
            yield Contradiction("capW", message, f"one number, or a list of {gpus:g}", len(caps))


class PolicySpec(Spec):
    """The rules by which the whole fleet is planned; there is one policy, named `default`."""

    nullable: ClassVar[frozenset[str]] = frozenset({"powerBudgetW"})

    pricing: Literal["gpu", "share", "node"] = Field(
        "node",
        description="Pay whole nodes, all of one while a service runs on it, where they are on demand or spot, and the "
        "GPUs that services use where they are owned or reserved; or always these GPUs, or the used fraction of them",
    )
    utilization: Annotated[float, Field(ge=0.05, le=0.95)] = Field(
        0.8, description="Largest share of time that an instance may be busy"
    )
    exec_margin: NotNegative = Field(0.05, description="Added to each execution time when latency is judged")
    profile_quantile: Annotated[float, Field(ge=0.5, le=0.99)] = Field(
        0.9, description="Quantile of a profile's uncertain values that plans count on; 0.5 is the mean"
    )
    same_model_per_gpu: Count = Field(1, description="Instances of one model on one GPU")
    clients_per_gpu: Count = Field(48, description="Instances and jobs on one GPU")
    jobs_per_gpu: Annotated[int, Field(ge=0, le=int(LARGEST))] = Field(3, description="Jobs on one GPU")
    move_price: NotNegative = Field(0.05, description="Price of a start, move or resize, as a share of the GPU's price")
    horizon_minutes: Positive = Field(60, description="How long a plan is expected to hold")
    unserved_price: NotNegative = Field(1000, description="Price of a request a second left unserved")
    unplaced_price: NotNegative = Field(50, description="Price of a job that misses its deadline")
    waiting_price: NotNegative = Field(0.01, description="Price of a job that waits")
    share_across_tenants: bool = Field(
        True, description="False: a GPU with an own runtime or a job has one tenant only"
    )
    share_pressure: Fraction = Field(0.5, description="Pressure to assume on the free share of a shared GPU")
    energy_price_per_kwh: NotNegative = Field(0, description="Price of energy")
    objective: Objective = Field(
        "money",
        description="What plans minimize: money, energy, a weighted sum, or unserved shares of rates",
    )
    carbon: CarbonSpec | None = Field(None, description="Price and intensity of the carbon that energy emits")
    power_budget_w: Positive | None = Field(None, description="Watts of the whole fleet; null: no limit")
    planner: Literal["joint", "hetsev", "mudi", "inss", "morak", "oltunes"] = Field(
        "joint", description="The planner: `joint` chooses everything together, the others follow published systems"
    )
    mode: Mode = Field("advisory", description="Show plans, ask before acting, or act")
    cycle_seconds: Positive = Field(30, description="Time between full planning cycles")
    risk: Risk = Field(
        0.05, description="Share of hours in which load above the plan may overspend a service's error budget"
    )
    lost_after_seconds: Positive = Field(120, description="Silence after which a node counts as lost")
    down_seconds: Positive = Field(
        20, description="How long a copy that has run may be down before it counts as lost and starts elsewhere"
    )
    idle_minutes: NotNegative = Field(15, description="How long a GPU stays idle before it is released")
    handover: Literal["overlap", "strict"] = Field(
        "overlap", description="Whether SM shares may pass 100 % during one hand-over"
    )
    handover_seconds: NotNegative = Field(120, description="How long they may exceed it")

    @classmethod
    def contradictions(cls, spec: Mapping[str, JSON]) -> Iterator[Contradiction]:
        yield from carbon_without_intensity(spec)


class Guarantee(Spec):
    """The GPUs that a tenant can always have."""

    gpus: Positive = Field(description="GPUs, as a sum of shares")


class TenantLimitSpec(Spec):
    """The most GPUs that a tenant's instances may take."""

    gpus: Positive | None = Field(None, description="GPUs, as a sum of shares")
    price_per_hour: Positive | None = Field(None, description="Price of these shares for an hour")


class TenantBudgetSpec(Spec):
    """The money that a tenant may spend."""

    per_month: NotNegative = Field(description="In a calendar month, UTC")
    currency: Annotated[str, Field(pattern="^[A-Z]{3}$")] | None = Field(
        None, description="Currency of all prices, an ISO 4217 code"
    )


class TenantSpec(Spec):
    """The owner of services and jobs. Without a Tenant object there are no limits."""

    guarantee: Guarantee | None = Field(None, description="Guaranteed GPUs")
    limit: TenantLimitSpec | None = Field(None, description="The most that it can have")
    budget: TenantBudgetSpec | None = Field(None, description="Money that it may spend")
    over_budget: Literal["alarm", "freeze", "degrade"] = Field(
        "alarm", description="What happens when the budget is spent"
    )

    @classmethod
    def contradictions(cls, spec: Mapping[str, JSON]) -> Iterator[Contradiction]:
        guarantee, limit = spec.get("guarantee"), spec.get("limit")
        if isinstance(guarantee, dict) and isinstance(limit, dict):
            least, most = number(guarantee.get("gpus")), number(limit.get("gpus"))
            if least is not None and most is not None and least > most:
                message = f"the guarantee of {least:g} GPUs is more than the limit of {most:g}"
                yield Contradiction("guarantee.gpus", message, f"at most {most:g}", least)
