"""A reproduction on a Ray cluster of two working nodes, one of which is lost in the middle (make test-ray)."""

import json
import threading
import time

import pytest

from upside import cli
from upside.experiments import catalogue

pytest.importorskip("ray", reason="needs the extra 'ray'")
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own

SEEDS, BUDGET = [0, 1, 2, 3], 8000


def until(condition, seconds=180.0):
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
    command = ["reproduce", "coverage-mazes", "--rows", "upside", "--envs", "u-maze"]
    command += ["--seeds", *map(str, SEEDS), "--interactions", str(BUDGET)]
    command += ["--output", str(tmp_path), "--ray", cluster.address]
    tasks = catalogue.tasks("coverage-mazes", tmp_path, ["upside"], SEEDS, BUDGET, ["u-maze"])
    try:
        codes = []
        reproduction = threading.Thread(target=lambda: codes.append(cli.main(command)))
        reproduction.start()
        until(lambda: any(one.done() for one in tasks))
        until(lambda: sum(0 < one.progress() < 1 and not one.done() for one in tasks) == 2)
        finished = {one: (one.path / "tree.json").stat().st_mtime_ns for one in tasks if one.done()}
        ours = ray._private.worker.global_worker.node._raylet_socket_name
        other = next(node for node in nodes if node._raylet_socket_name != ours)
        cluster.remove_node(other, allow_graceful=False)
        reproduction.join(300)
        assert codes == [0]
        for one, written in finished.items():
            assert (one.path / "tree.json").stat().st_mtime_ns == written, "done twice"
        table = json.loads((tmp_path / "coverage-mazes" / "table.json").read_text())
        assert table["table"]["upside"]["u-maze"]["seeds"] == SEEDS
    finally:
        ray.shutdown()
        cluster.shutdown()
