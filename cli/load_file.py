"""The load to simulate: the rates that files declare, and those of a CSV file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from app.manifests.model import Kind
from cli.exits import Failed
from cli.talk.contexts import reason
from simulation.limits import MOST_RATE_PER_SECOND, MOST_RATES_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from app.manifests.offline import DeclaredFiles
    from simulation.measure.rates import RateCurve
    from simulation.serving.arrivals import PlayedRequests

T = TypeVar("T")

RATES_COLUMNS = "the columns seconds,service,ratePerSecond (tenant/name; linear between rows)"


def refuse_language_models(world: DeclaredFiles, what: str) -> None:
    """Raises Failed if a service promises times of tokens, which `what` cannot simulate."""
    if models := [manifest for manifest in world.of(Kind.SERVICE) if "tokens" in manifest.spec]:
        named = f"{models[0].tenant}/{models[0].name}"
        raise Failed(f"{named} promises times of tokens; {what} does not simulate language models")


def read_simulated_rates(world: DeclaredFiles) -> dict[str, float]:
    """Returns the declared rate of every service; Failed where one cannot be simulated."""
    from app.control.formulate.problem import build_problem

    rates = {name: service.rate_per_second for name, service in build_problem(world).services.items()}
    if not rates:
        raise Failed("the files declare no Service, so there is nothing to simulate")
    if busiest := [name for name, rate in sorted(rates.items()) if rate > MOST_RATE_PER_SECOND]:
        name = busiest[0]
        raise Failed(f"{name} declares ratePerSecond {rates[name]:g}: at most {MOST_RATE_PER_SECOND:,} are simulated")
    return rates


def read_curves(file: str, services: Collection[str]) -> dict[str, RateCurve]:
    """Returns the rates of a CSV file over time; Failed with every fault."""
    from simulation.measure.rates import read_rates

    return _read(file, services, read_rates)


def read_trace(file: str, services: Collection[str]) -> dict[str, PlayedRequests]:
    """Returns each service's requests in a CSV file; Failed with every fault."""
    from simulation.measure.requests import read_requests

    return _read(file, services, read_requests)


def _read(file: str, services: Collection[str], read: Callable[[str, str, Collection[str]], T]) -> T:
    from simulation.measure.load_tables import LoadRefused

    try:
        return read(_text(file), file, services)
    except LoadRefused as refused:
        count = len(refused.faults)
        faults = "1 fault" if count == 1 else f"{count} faults"
        first = "the first " if refused.may_have_more else ""
        raise Failed(f"{first}{faults} in {file}", particulars=refused.faults) from None


def _text(file: str) -> str:
    try:
        with Path(file).open("rb") as opened:
            data = opened.read(MOST_RATES_BYTES + 1)
    except OSError as error:
        raise Failed(f"cannot read {file}: {reason(error)}") from None
    if len(data) > MOST_RATES_BYTES:
        raise Failed(f"{file} is over {MOST_RATES_BYTES >> 20} MB; give fewer rows")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Failed(f"{file} is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}") from None
