"""Fits a new plan onto what runs: moves each planned GPU to the one of its pool that runs most of it already."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from solvers.planning.problem import Instance, Place, Problem
from solvers.planning.search.tables import Pool, Tables

Key: TypeAlias = tuple[str, str, int, float]  # what makes an instance the same: all that a keep needs
MOST_PAIRS = 400_000  # of patterns and GPUs: beyond it they are paired greedily


def match_running(t: Tables, cold: Sequence[Instance]) -> list[Instance]:
    """Returns the same plan on other GPUs of the same pools, so that as many SM% as possible run there already."""
    state = t.problem.state
    assert state
    by_place = lines_by_place(cold)
    running = {place: Counter(map(key_of, lines)) for place, lines in lines_by_place(state.running).items()}
    moves: dict[Place, Place] = {}
    for pool in t.pools:
        pairs = _node_pairs(t.problem, pool, by_place, running) if pool.node_sizes else [(pool.gpus, pool.gpus)]
        for planned, places in pairs:
            moves |= _pair_places([place for place in planned if place in by_place], list(places), by_place, running)
    found = [replace(line, node=moves[line.place][0], gpu=moves[line.place][1]) for line in cold]
    if not _nodes_hold(t.problem, found):
        found = list(cold)
    return _keep_names(found, state.running)


def _node_pairs(
    problem: Problem, pool: Pool, by_place: Mapping[Place, list[Instance]], running: Mapping[Place, Counter[Key]]
) -> list[tuple[Sequence[Place], Sequence[Place]]]:
    """Finds for each node in the plan, where nodes are billed whole, one of its size, so that no more is paid.

    Those with most SM% in common come first, then its own node, then any, empty ones first.
    """
    gpus: dict[str, list[Place]] = defaultdict(list)
    for place in pool.gpus:
        gpus[place[0]].append(place)
    wanted: dict[str, Counter[Key]] = {}
    there: dict[str, Counter[Key]] = {}
    for name, places in gpus.items():
        if lines := [line for place in places for line in by_place.get(place, ())]:
            wanted[name] = Counter(map(key_of, lines))
        there[name] = sum((running.get(place, Counter()) for place in places), Counter[Key]())
    size = {name: problem.nodes[name].gpu_count for name in gpus}
    found: dict[str, str] = {}
    free = dict.fromkeys(gpus)
    for name, to in _nodes_in_common(wanted, there):
        if name not in found and to in free and size[name] == size[to]:
            found[name] = to
            del free[to]
    for name in wanted:
        if name not in found and name in free:
            found[name] = name
            del free[name]
    for name in wanted:
        if name not in found:
            found[name] = min((to for to in free if size[to] == size[name]), key=lambda to: (bool(there[to]), to))
            del free[found[name]]
    return [(gpus[name], gpus[to]) for name, to in found.items()]


def _nodes_in_common(wanted: Mapping[str, Counter[Key]], there: Mapping[str, Counter[Key]]) -> list[tuple[str, str]]:
    """Returns the pairs of a planned node and a running one with instances in common, those with most SM% first."""
    holding: dict[Key, list[str]] = defaultdict(list)
    for name, keys in there.items():
        for key in keys:
            holding[key].append(name)
    common: dict[tuple[str, str], float] = defaultdict(float)
    for name, keys in wanted.items():
        for key, count in keys.items():
            for to in holding.get(key, ()):
                common[name, to] += key[2] * min(count, there[to][key])
    return sorted(common, key=lambda pair: (-common[pair], pair[0] != pair[1], pair))


def _pair_places(
    patterns: list[Place], places: list[Place], by_place: dict[Place, list[Instance]],
    running: dict[Place, Counter[Key]],
) -> dict[Place, Place]:  # fmt: skip
    """Finds a place for each planned GPU: the same set first, then most SM% in common, then its own, then any."""
    keys = {place: Counter(map(key_of, by_place[place])) for place in patterns}
    free, moves = dict.fromkeys(places), {}
    alike: dict[frozenset[tuple[Key, int]], list[Place]] = defaultdict(list)
    for place in reversed(places):
        if place in running:
            alike[frozenset(running[place].items())].append(place)
    for place in patterns:
        there = alike.get(frozenset(keys[place].items()))
        if there:
            moves[place] = place if place in there else there[-1]
            there.remove(moves[place])
            del free[moves[place]]
    rest = [place for place in patterns if place not in moves]
    for place, to in _most_in_common(rest, [place for place in free if place in running], keys, running):
        moves[place] = to
        del free[to]
    rest = [place for place in rest if place not in moves]
    for place in [*rest]:
        if place in free:
            moves[place] = place
            del free[place]
    # Empty ones first: what would stop on the others stops anyway.
    spare = sorted(free, key=lambda place: (place in running, place))
    for place in rest:
        if place not in moves:
            moves[place] = spare.pop(0)
    return moves


def _most_in_common(
    patterns: list[Place], places: list[Place], keys: dict[Place, Counter[Key]], running: dict[Place, Counter[Key]]
) -> list[tuple[Place, Place]]:
    holding: dict[Key, list[int]] = defaultdict(list)
    for index, place in enumerate(places):
        for key in running[place]:
            holding[key].append(index)
    common: dict[tuple[int, int], float] = defaultdict(float)
    for number, place in enumerate(patterns):
        for key, count in keys[place].items():
            for index in holding.get(key, ()):
                common[number, index] += key[2] * min(count, running[places[index]][key])
    if len(patterns) * len(places) <= MOST_PAIRS:
        worth = np.zeros((len(patterns), len(places)))
        for pair, sm in common.items():
            worth[pair] = sm
        from scipy.optimize import linear_sum_assignment  # takes a third of a second, and most plans begin with nothing

        rows, columns = linear_sum_assignment(worth, maximize=True)
        pairs = [(int(r), int(c)) for r, c in zip(rows, columns, strict=True) if worth[r, c] > 0]
    else:
        pairs, used, taken = [], set(), set()
        for number, index in sorted(common, key=lambda pair: (-common[pair], pair)):
            if number not in used and index not in taken:
                pairs.append((number, index))
                used.add(number)
                taken.add(index)
    return [(patterns[number], places[index]) for number, index in pairs]


def _nodes_hold(problem: Problem, lines: Sequence[Instance]) -> bool:
    """Returns whether every node still has enough cores and host memory."""
    cores: dict[str, float] = defaultdict(float)
    hosted: dict[str, float] = defaultdict(float)
    for line in lines:
        profile = problem.profile(line.service, line.variant, line.node)
        assert profile
        cores[line.node] += profile.demand.cpu_cores
        hosted[line.node] += profile.demand.host_memory_gib
    nodes = problem.nodes
    return all(
        cores[name] <= nodes[name].cpu_cores + 1e-9 and hosted[name] <= nodes[name].host_memory_gib + 1e-9
        for name in cores
    )


def _keep_names(lines: Sequence[Instance], running: Sequence[Instance]) -> list[Instance]:
    """Gives what runs already its old name, and to no other instance."""
    names: dict[tuple[Place, Key], list[str]] = defaultdict(list)
    for line in reversed(running):
        names[line.place, key_of(line)].append(line.id)
    taken = {line.id for line in running}
    found, numbers = [], Counter[str]()
    for line in lines:
        known = names.get((line.place, key_of(line)))
        if known:
            found.append(replace(line, id=known.pop()))
            continue
        name = line.id
        while name in taken:
            numbers[line.service] += 1
            name = f"{line.service}/{numbers[line.service]}"
        taken.add(name)
        found.append(replace(line, id=name))
    return found


def key_of(line: Instance) -> Key:
    return (line.service, line.variant, line.sm_percent, round(line.memory_gib, 9))


def lines_by_place(lines: Sequence[Instance]) -> dict[Place, list[Instance]]:
    found: dict[Place, list[Instance]] = defaultdict(list)
    for line in lines:
        found[line.place].append(line)
    return found
