"""One of two hosts, as torchrun runs there: `two_hosts.py FOLDER HOST PORT [STEP]` starts two of four processes, and again after
one of them was killed. Every host has a folder of its own; they meet at PORT of this machine.

The processes are forks of this one, which has imported everything: torchrun would start two that import it again.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from restarting import main
from torch.distributed.launcher.api import LaunchConfig, elastic_launch  # what torchrun calls

if __name__ == "__main__":
    torch.set_num_threads(1)  # a fork must not inherit a pool of threads
    host, port = int(sys.argv[2]), sys.argv[3]
    config = LaunchConfig(
        min_nodes=2, max_nodes=2, nproc_per_node=2, run_id="two-hosts", rdzv_backend="c10d", rdzv_endpoint=f"127.0.0.1:{port}",
        rdzv_configs={"is_host": host == 0}, start_method="fork", max_restarts=2, monitor_interval=0.05,
    )
    elastic_launch(config, main)(Path(sys.argv[1]) / f"host{host}", int(sys.argv[4]) if len(sys.argv) > 4 else None)
