"""For how much of the time each node with GPUs stood, also of those that are gone, by kube-state-metrics."""

from __future__ import annotations

from clusters.asking import MetricsReader
from clusters.measured import MeasuredSeries
from clusters.reading.gpu_nodes import GPU_RESOURCE_LABEL

SEEN = "kube_node_status_capacity"  # of nodes without GPUs, too
CAPACITY = f'kube_node_status_capacity{{resource=~"{GPU_RESOURCE_LABEL}"}}'


def read_standing_nodes(reader: MetricsReader, window: str, every: str) -> dict[str, MeasuredSeries]:
    """Returns of each node for how much of each step it stood; a step without kube-state-metrics is a gap.

    PrometheusFailed if there is no answer.
    """
    found = reader.read_by_label(f"count_over_time((max by (node) ({CAPACITY}) > 0)[{window}:{every}])", "node")
    seen = reader.read_steps(f"count_over_time((count({SEEN}))[{window}:{every}])")  # how often anything was seen
    moments = [round(end) for end in reader.ends]
    return {
        node: tuple(
            min(1.0, values.get(moment, 0.0) / times) if times else None
            for moment, times in zip(moments, seen, strict=True)
        )
        for node, values in found.items()
        if node and seen
    }
