"""Judges a placement: its cost and the rules it breaks, in plain loops. It shares no code with the solvers."""

from __future__ import annotations

from solvers.hetsev.placement.problem import Placement, PlacementProblem

TOLERANCE = 1e-9  # relative: the rounding of floating-point sums


def cost(problem: PlacementProblem, placement: Placement) -> float:
    """Returns the price of every GPU in use plus the price of every unplaced instance."""
    total = 0.0
    for gpu in problem.gpus:
        if gpu.name in placement.values():
            total += gpu.price_per_hour
    for instance in problem.instances:
        if instance.name not in placement:
            total += problem.unplaced_price
    return total


def violations(problem: PlacementProblem, placement: Placement) -> list[str]:
    """Returns a sentence for every broken rule."""
    found = []
    instances = {instance.name: instance for instance in problem.instances}
    gpus = {gpu.name: gpu for gpu in problem.gpus}
    for name, where in sorted(placement.items()):
        if name not in instances or where not in gpus:
            found.append(f"{name} is placed on {where}; one of the two is unknown")
        elif instances[name].gpu_types is not None and gpus[where].gpu_type not in (instances[name].gpu_types or ()):
            found.append(f"{name} is placed on {where}, a {gpus[where].gpu_type} that does not suit it")
    if found:
        return found
    for name, where in sorted(problem.current.items()):
        if placement.get(name) != where:
            found.append(f"{name} is placed on {where} and must stay there; it is moved to {placement.get(name)}")
    for gpu in problem.gpus:
        memory = 0.0
        models: dict[str, int] = {}
        for name, where in placement.items():
            if where == gpu.name:
                memory += instances[name].memory_gib
                models[instances[name].model] = models.get(instances[name].model, 0) + 1
        if memory > gpu.memory_gib * (1 + TOLERANCE):
            found.append(f"{gpu.name}: {memory:g} GiB are used of {gpu.memory_gib:g}")
        for model, count in sorted(models.items()):
            if count > problem.same_model_per_gpu:
                found.append(f"{gpu.name}: {count} instances of {model}; the limit is {problem.same_model_per_gpu}")
    for node in problem.nodes:
        cores = memory = 0.0
        for name, where in placement.items():
            if gpus[where].node == node.name:
                cores += instances[name].cpu_cores
                memory += instances[name].host_memory_gib
        if cores > node.cpu_cores * (1 + TOLERANCE):
            found.append(f"{node.name}: {cores:g} CPU cores are used of {node.cpu_cores:g}")
        if memory > node.host_memory_gib * (1 + TOLERANCE):
            found.append(f"{node.name}: {memory:g} GiB of host memory are used of {node.host_memory_gib:g}")
    return found
