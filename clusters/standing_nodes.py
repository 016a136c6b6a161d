"""For how much of the time each node with GPUs stood, also of those that are gone, by kube-state-metrics."""

from __future__ import annotations

from clusters.asking import MetricsReader
from clusters.measured import MeasuredSeries

CAPACITY = 'kube_node_status_capacity{resource=~"nvidia_com_.*"}'


def read_standing_nodes(reader: MetricsReader, window: str, every: str) -> dict[str, MeasuredSeries]:
    """Returns of each node for how much of each step it stood; a step without kube-state-metrics is a gap.

    PrometheusFailed if there is no answer.
    """
    found = reader.read_by_label(f"max_over_time((max by (node) ({CAPACITY}))[{window}:{every}])", "node")
    moments = [round(end) for end in reader.ends]
    seen = {moment for values in found.values() for moment in values}
    return {
        node: tuple(min(1.0, values.get(moment, 0.0)) if moment in seen else None for moment in moments)
        for node, values in found.items()
        if node
    }
