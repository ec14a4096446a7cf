"""Make a results file from run directories: python results/collect.py OUT.json COMMIT RUN_DIR ...

Each run's own configuration says what was run; the command that repeats it is written beside it.
COMMIT is that of the code that made the runs.
"""

import dataclasses
import json
import statistics
import sys

from upside.run import Run
from upside.version import __version__

MARKS = (100_000, 200_000, 300_000, 500_000, 1_000_000, 2_000_000, 3_000_000)


def buckets_at(run: Run, interactions: int) -> int:
    """Buckets covered when that many interactions had been spent (as counted during the run)."""
    before = [line["buckets"] for line in run.history if line["interactions"] <= interactions]
    return before[-1] if before else 0


def entry(path: str) -> dict:
    run = Run.load(path)
    config = run.config
    ends = run.summary["interactions"]
    marks = {str(m): buckets_at(run, m) for m in MARKS if m <= config.max_interactions}
    return {
        "command": f"upside train {config.method} --env {config.env} --seed {config.seed} "
        f"--max-interactions {config.max_interactions}",
        "config": dataclasses.asdict(config),
        "coverage": run.coverage(),
        "buckets_at": marks,
        "interactions": ends,
    }


def main() -> None:
    out, commit, *paths = sys.argv[1:]
    runs = [entry(path) for path in paths]
    buckets = [r["coverage"]["buckets"] for r in runs]
    summary = {
        "seeds": [r["config"]["seed"] for r in runs],
        "buckets": buckets,
        "buckets_mean": statistics.mean(buckets),
        "buckets_spread": statistics.stdev(buckets) if len(buckets) > 1 else None,
        "share_above_eta_on_fresh_states": statistics.mean(
            r["coverage"]["share_above_eta_on_fresh_states"] for r in runs
        ),
    }
    with open(out, "w") as file:
        whole = {"version": __version__, "commit": commit, "summary": summary, "runs": runs}
        json.dump(whole, file, indent=1)
        file.write("\n")
    print(out, json.dumps(summary))


if __name__ == "__main__":
    main()
