"""Runs on a Ray cluster of two working nodes, one of which is lost in the middle (make test-ray)."""

import threading
import time

import pytest

from upside.experiments import executor
from upside.experiments.tasks import task

pytest.importorskip("ray", reason="needs the extra 'ray'")
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


def until(condition, seconds=120.0):
    """Wait for `condition` to be true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.1)


def test_a_reproduction_outlives_a_lost_node_and_repeats_no_finished_run(tmp_path):
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    nodes = [cluster.add_node(num_cpus=1), cluster.add_node(num_cpus=1)]
    try:
        budgets = [1500, 20_000, 20_000, 20_000]
        tasks = [
            task(
                "row", tmp_path, "u-maze", seed, budget, "upside", k_pol=10, probes=8, k_steps=4000
            )
            for seed, budget in enumerate(budgets)
        ]
        for one in tasks:
            one.start()
        outcome = {}
        reproduction = threading.Thread(
            target=lambda: outcome.update(executor.ray(tasks, cluster.address))
        )
        reproduction.start()
        until(tasks[0].done)
        until(lambda: sum(0 < one.progress() < 1 and not one.done() for one in tasks) == 2)
        finished = {one: (one.path / "tree.json").stat().st_mtime_ns for one in tasks if one.done()}
        ours = ray._private.worker.global_worker.node._raylet_socket_name
        other = next(node for node in nodes if node._raylet_socket_name != ours)
        cluster.remove_node(other, allow_graceful=False)
        reproduction.join(300)
        assert outcome == dict.fromkeys(tasks, "")
        assert all(one.done() for one in tasks)
        for one, written in finished.items():
            assert (one.path / "tree.json").stat().st_mtime_ns == written, "done twice"
    finally:
        ray.shutdown()
        cluster.shutdown()
