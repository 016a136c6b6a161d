"""Judges two pools by plain arithmetic, apart from what chose them: rates, memory, links, GPUs and the bill."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from solvers.pools.apart import ApartServers
from solvers.pools.servers import ServerGroup

NEAR_SHARE = 1e-6


@dataclass(frozen=True, slots=True)
class ApartTerms:
    """What two pools have to keep, besides times: those are simulated."""

    rate_per_second: float
    input_mean: float  # tokens
    context_tokens: int  # that the longest request has
    kv_bytes_per_token: float
    price_per_hour: Mapping[str, float]  # of a GPU, by type
    most_gpus: Mapping[str, int]
    fewest: int = 1  # servers of each pool
    nodes: Mapping[str, Mapping[int, int]] | None = None  # by type, how many there are of so many GPUs; None: any


def list_violations(servers: ApartServers, terms: ApartTerms) -> list[str]:
    """Returns a sentence for each rule that is broken."""
    found = [
        sentence
        for name, pool in (("prefill", servers.prefill), ("decode", servers.decode))
        for group in pool
        for sentence in _judge_group(servers, terms, name, group)
    ]
    gpus: dict[str, int] = {}
    bill = 0.0
    for name, pool in (("prefill", servers.prefill), ("decode", servers.decode)):
        rate, count = 0.0, 0
        for group in pool:
            rate += servers.cells * group.rate_per_second
            count += servers.cells * group.count
            held = servers.cells * group.count * group.server.degree
            gpus[group.server.gpu_type] = gpus.get(group.server.gpu_type, 0) + held
            bill += held * terms.price_per_hour[group.server.gpu_type]
        if rate < terms.rate_per_second * (1 - NEAR_SHARE):
            found.append(f"{name} is planned for {rate:g} requests/s of {terms.rate_per_second:g}")
        if count < terms.fewest:
            found.append(f"{name} has {count} servers; at least {terms.fewest} are asked for")
    found += [
        f"{count} {gpu_type} are used; {terms.most_gpus.get(gpu_type, 0)} may be rented"
        for gpu_type, count in gpus.items()
        if count > terms.most_gpus.get(gpu_type, 0)
    ]
    return [*found, *_judge_link(servers, gpus), *_judge_nodes(servers, terms), *_judge_bill(servers, terms, bill)]


def _judge_group(servers: ApartServers, terms: ApartTerms, name: str, group: ServerGroup) -> Iterator[str]:
    server = group.server
    what = f"a {name} server of {server.degree} {server.gpu_type}"
    each = group.rate_per_second / group.count
    if each > server.rate_per_second * (1 + NEAR_SHARE):
        yield f"{what} gets {each:g} requests/s and carries {server.rate_per_second:g}"
    if server.limits.kv_tokens < terms.context_tokens:
        yield f"{what} holds {server.limits.kv_tokens} tokens, fewer than a context of {terms.context_tokens}"
    speed = servers.sent.link.gbit_per_second.get(server.gpu_type, 0.0) * 1e9 / 8 * server.degree
    wanted = each * terms.input_mean * terms.kv_bytes_per_token
    if wanted > speed * (1 + NEAR_SHARE):
        yield f"{what} sends or gets {wanted:g} bytes/s over links of {speed:g}"


def _judge_link(servers: ApartServers, gpus: Mapping[str, int]) -> Iterator[str]:
    link, most = servers.sent.link, servers.sent.link.most_gpus
    for gpu_type in {group.server.gpu_type for group in servers.prefill}:
        if link.senders is not None and gpu_type not in link.senders:
            yield f"{gpu_type} does not send at {link.price_per_gib:g} per GiB"
    if most is None:
        return
    if len(gpus) > 1:
        yield f"{servers.sent.link.kind} joins GPUs of one type, and the pools have {' and '.join(sorted(gpus))}"
    if sum(gpus.values()) > most * servers.cells:
        yield f"{sum(gpus.values())} GPUs in {servers.cells} cells are more than the {most} that a link joins in each"
    if link.groups is not None:
        yield from _place_blocks(
            f"a {link.kind} group", [sum(gpus.values()) // servers.cells] * servers.cells, link.groups
        )


def _judge_nodes(servers: ApartServers, terms: ApartTerms) -> Iterator[str]:
    for gpu_type in servers.gpu_counts if terms.nodes is not None and servers.sent.link.most_gpus is None else ():
        blocks = [
            group.server.degree
            for group in (*servers.prefill, *servers.decode)
            for _ in range(group.count)
            if group.server.gpu_type == gpu_type
        ]
        yield from _place_blocks(f"a node of {gpu_type}", blocks, (terms.nodes or {}).get(gpu_type, {}))


def _place_blocks(what: str, blocks: Sequence[int], rooms: Mapping[int, int]) -> Iterator[str]:
    """Gives each block GPUs of one room, the largest blocks first; degrees of servers divide each other."""
    left = {size: count for size, count in rooms.items() if count}
    for gpus in sorted(blocks, reverse=True):
        size = max(left, default=0)
        if size < gpus:
            yield f"no room for {gpus} GPUs is left in {what}"
            return
        left[size] -= 1
        left[size - gpus] = left.get(size - gpus, 0) + 1
        left = {each: count for each, count in left.items() if count}


def _judge_bill(servers: ApartServers, terms: ApartTerms, gpus_per_hour: float) -> Iterator[str]:
    gib_per_hour = terms.rate_per_second * terms.input_mean * terms.kv_bytes_per_token * 3600 / 1024**3
    bill = gpus_per_hour + gib_per_hour * servers.sent.link.price_per_gib
    if abs(bill - servers.cost_per_hour) > NEAR_SHARE * max(1.0, bill):
        yield f"the pools cost {bill:g} an hour; {servers.cost_per_hour:g} are stated"
