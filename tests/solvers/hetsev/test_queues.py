"""HetSev's order: alike instances share a queue, and each round takes a fair buffer out of the queues."""

from __future__ import annotations

import numpy as np

from solvers.hetsev.queues import PendingInstance, buffer, features, k_means, sort_fairly


def instance(name: str, model: str, memory_gib: float = 2.0, waited_seconds: float = 0.0) -> PendingInstance:
    return PendingInstance(name, model, memory_gib, waited_seconds)


def test_features_are_scaled_memory_and_the_model_one_hot() -> None:
    rows = features((instance("a", "x", 2.0), instance("b", "y", 6.0), instance("c", "x", 4.0)))
    assert rows.tolist() == [[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.5, 1.0, 0.0]]


def test_similar_instances_share_a_queue_and_a_seed_repeats_the_result() -> None:
    instances = tuple(instance(f"{model}{i}", model) for model in "wxyz" for i in range(5))
    clusters = k_means(features(instances), 4, seed=3)
    assert clusters == k_means(features(instances), 4, seed=3)
    by_model = {
        model: {c for each, c in zip(instances, clusters, strict=True) if each.model == model} for model in "wxyz"
    }
    assert all(len(found) == 1 for found in by_model.values())
    assert len(set.union(*by_model.values())) == 4


def test_k_means_gives_no_more_clusters_than_points_and_none_for_none() -> None:
    assert k_means(np.zeros((0, 2)), 4, 0) == []
    assert k_means(np.array([[0.0], [1.0]]), 4, 0) in ([0, 1], [1, 0])


def test_a_starving_queue_gets_more_of_the_buffer() -> None:
    long = [instance(f"l{i}", "x", waited_seconds=90.0) for i in range(9)]
    short = [instance(f"s{i}", "y", waited_seconds=90.0) for i in range(3)]
    picked = buffer([short, long], 8)
    assert [each.name[0] for each in picked] == ["l"] * 6 + ["s"] * 2
    assert (len(short), len(long)) == (1, 3)


def test_within_a_queue_the_longest_waiting_comes_first() -> None:
    queue = [instance("a", "x", waited_seconds=1.0), instance("b", "x", waited_seconds=5.0)]
    assert [each.name for each in buffer([queue], 1)] == ["b"]


def test_every_instance_comes_once_for_any_k_and_beta() -> None:
    instances = [instance(f"{m}{i}", m, float(1 + i), float(i)) for m in "abc" for i in range(4)]
    for k in (1, 3, 8):
        for beta in (1, 5, 50):
            ordered = list(sort_fairly(instances, k, beta))
            assert sorted(each.name for each in ordered) == sorted(each.name for each in instances)
