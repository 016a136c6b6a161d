"""For how much of the time each node with GPUs stood, also of those that are gone, by kube-state-metrics."""

from __future__ import annotations

from clusters.measured import MeasuredSeries
from clusters.metrics.asking import MetricsReader
from clusters.metrics.renamed_labels import check_renamed, match_own
from clusters.reading.gpu_nodes import GPU_RESOURCE_LABEL

SEEN = f"kube_node_status_capacity{{{match_own('node')}}}"  # of nodes without GPUs, too
CAPACITY = f'kube_node_status_capacity{{resource=~"{GPU_RESOURCE_LABEL}",{match_own("node")}}}'


def read_standing_nodes(reader: MetricsReader, window: str, every: str) -> dict[str, MeasuredSeries]:
    """Returns of each node for how much of each step it stood; a step without kube-state-metrics is a gap.

    PrometheusFailed if there is no answer.
    """
    found = reader.read_by_label(f"count_over_time((max by (node) ({CAPACITY}) > 0)[{window}:{every}])", "node")
    seen = reader.read_steps(f"count_over_time((count({SEEN}))[{window}:{every}])")  # how often anything was seen
    if not seen or seen[-1] is None:
        check_renamed(reader, "kube_node_status_capacity", "kube-state-metrics", "node")
    moments = [round(end) for end in reader.ends]
    return {
        node: tuple(
            min(1.0, values.get(moment, 0.0) / times) if times else None
            for moment, times in zip(moments, seen, strict=True)
        )
        for node, values in found.items()
        if node and seen
    }
