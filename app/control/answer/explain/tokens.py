"""Explains the instances of language models: the GPUs that they hold, and what they carry."""

from __future__ import annotations

from app.control.answer.explain.wording import count, money, ms, rate
from solvers.planning.fleet.offers import read_offers
from solvers.planning.fleet.token_shapes import carried_by
from solvers.planning.language import TokenLengths
from solvers.planning.problem import Instance, Problem, Service


def spell_promise(service: Service) -> str:
    """Returns what a service promises its requests."""
    if service.tokens is None:
        return f"within {service.slo_ms:g} ms"
    promise = service.tokens.promise
    return f"with the first token within {promise.ttft_ms:g} ms and as many at {promise.tpot_ms:g} ms a token or less"


def spell_lengths(service: Service, declared: TokenLengths) -> str:
    """Returns the lengths that a plan was made for, if gateways have measured others than declared; else nothing."""
    if service.tokens is None or service.tokens.lengths == declared:
        return ""
    planned = service.tokens.lengths
    return (
        f"planned for {planned.input_mean:,.0f} tokens in and {planned.output_mean:,.0f} out on average, as gateways "
        f"count them; {declared.input_mean:,.0f} and {declared.output_mean:,.0f} are declared"
    )


def describe_whole(problem: Problem, line: Instance) -> str:
    """Describes the shape of a language model's instance, and what it could carry."""
    service, node = problem.services[line.service], problem.nodes[line.node]
    spread = f"{line.degree} linked GPUs" if line.degree > 1 else "one whole GPU"
    return (
        f"{line.variant} holds {spread} of type {node.gpu_type}, with {line.batch} requests at once: it carries "
        f"{rate(line.rate_per_second)} a second of {rate(carried_by(problem, service, line))} at most; the first token "
        f"comes within {ms(line.latency_ms)} and each further one within {ms(line.tpot_ms)}"
    )


def other_shapes(problem: Problem, line: Instance) -> str:
    """Compares the price of a request with that of the cheapest other shape."""
    service, prices = problem.services[line.service], _prices(problem)
    mine = line.degree * problem.nodes[line.node].price_per_hour / (carried_by(problem, service, line) or 1e-9)
    here = (problem.nodes[line.node].gpu_type, line.variant, line.degree)
    others = [
        (shape.degree * prices[shape.gpu_type] / shape.rate_per_second, shape)
        for shape in read_offers(problem).find_token_shapes(service)
        if shape.gpu_type in prices and (shape.gpu_type, shape.variant, shape.degree) != here
    ]
    if not others:
        return "it has no other profiled shape on the fleet"
    price, best = min(others, key=lambda entry: (entry[0], entry[1].degree))
    spread = f"{best.variant} on {count(best.degree, 'GPU')} of type {best.gpu_type}"
    return f"a request a second costs {money(mine)} an hour at full load here, and {money(price)} by {spread}"


def _prices(problem: Problem) -> dict[str, float]:
    found: dict[str, float] = {}
    for node in problem.nodes.values():
        found[node.gpu_type] = min(node.price_per_hour, found.get(node.gpu_type, node.price_per_hour))
    return found
