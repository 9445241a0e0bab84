"""Costs of the live view, and its effect on the time of executions."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

from execution.cases.emulation import Experiment
from execution.live.feed import Address, LiveFeed, live_feed
from linux.machine.cpu_time import processes_s
from linux.network.namespaces import namespace_of
from model.fabric.spec import FabricSpec
from model.workload.transfers.collective import Collective
from studies.benchmarks.common.fabrics import bench_fabric
from studies.benchmarks.common.rows import SIXTEEN, Row, sized
from traffic_gen.workloads.sized_collective import SizedCollective

TRIALS = 6
# Seconds for which the NICs are busy in an execution.
EXECUTION_S = 3
TIMEOUT_S = 20


@dataclass
class Follower:
    """Counts the frames that a page gets."""

    frames: int = 0
    stopped: bool = False

    def follow(self, feed: LiveFeed) -> None:
        """Read events as a browser does, until stopped; from the namespace of the server."""
        parts = urlsplit(feed.url)
        with closing(HTTPConnection(parts.netloc, timeout=TIMEOUT_S)) as connection:
            with namespace_of(feed.process_id):
                connection.request("GET", f"{parts.path}events")
            answer = connection.getresponse()
            while not self.stopped and (line := answer.readline()):
                self.frames += line == b"event: frame\n"


def live(_store: Path) -> Iterator[Row]:
    """Updates a second and processor time of the page's server, and its effect on executions."""
    for spec in (SIXTEEN, sized(8, 8)):
        with live_feed(Address()) as feed, bench_fabric("live", spec) as fabric:
            feed.show(fabric)
            yield _row(spec, feed, fabric)
            feed.show(None)


def _row(spec: FabricSpec, feed: LiveFeed, fabric: Experiment) -> Row:
    """Execute in turn with and without a follower."""
    size = round(EXECUTION_S * spec.emulated_nic_bps / 8)
    schedule = SizedCollective(Collective.ALL_TO_ALL, "two-step", spec.job_shape, size).steps()
    prediction = fabric.predict(schedule)
    repeats = fabric.repeats(schedule, prediction, 2 * TRIALS + 1, check_data=False)
    next(repeats)  # a warm-up
    alone_s, followed_s, shares, rates = [], [], [], []
    for _ in range(TRIALS):
        alone_s.append(next(repeats).completion_s)
        begun_s, before_s = time.monotonic(), processes_s([feed.process_id])
        with _following(feed) as follower:
            followed_s.append(next(repeats).completion_s)
            elapsed_s = time.monotonic() - begun_s
            rates.append(follower.frames / elapsed_s)
            shares.append((processes_s([feed.process_id]) - before_s) / elapsed_s)
    return {
        "gpus": spec.gpus,
        "links": len(fabric.topology.links),
        "updates_per_s": median(rates),
        "server_share_of_a_core": median(shares),
        "alone_s": median(alone_s),
        "followed_s": median(followed_s),
        "followed_over_alone": median(followed_s) / median(alone_s),
    }


@contextmanager
def _following(feed: LiveFeed) -> Iterator[Follower]:
    follower = Follower()
    thread = threading.Thread(target=follower.follow, args=(feed,))
    thread.start()
    try:
        yield follower
    finally:
        follower.stopped = True
        thread.join()
