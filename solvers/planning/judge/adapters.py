"""What a service's LoRA adapters cost a server of its language model, and whether the server holds them."""

from __future__ import annotations

from dataclasses import fields, replace

from solvers.planning.language import IterationCost
from solvers.planning.problem import Profile, Service


def keep_places(profile: Profile, service: Service) -> Profile:
    """Returns the profile of a server that keeps its places for adapters, if the service has any."""
    places = profile.adapters
    if places is None or service.tokens is None or not service.tokens.adapters:
        return profile
    costs = {degree: lengthen(cost, 1 + places.slowdown) for degree, cost in profile.iteration.items()}
    return replace(profile, iteration=costs, adapters_gib=places.places * places.place_gib)


def lengthen(cost: IterationCost, factor: float) -> IterationCost:
    """Returns an iteration whose time is so many times as long."""
    return IterationCost(*(getattr(cost, part.name) * factor for part in fields(cost)))


def find_unheld_adapters(profile: Profile, service: Service) -> str:
    """Returns why a server of this profile does not hold the service's adapters; empty if it does."""
    tokens, places, name = service.tokens, profile.adapters, f"the profile of {profile.model} on {profile.gpu_type}"
    if tokens is None or not tokens.adapters:
        return ""
    if places is None:
        return f"{name} states no places for adapters"
    if len(tokens.adapters) > places.places:
        return f"{name} has {places.places} places for adapters, fewer than {len(tokens.adapters)}"
    rank = max(adapter.rank for adapter in tokens.adapters)
    return f"{name} holds adapters up to rank {places.max_rank}, not {rank}" if rank > places.max_rank else ""
