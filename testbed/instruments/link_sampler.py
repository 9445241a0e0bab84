"""Samples the bytes that all links have carried, about a hundred times a second.

Runs as a thread of the run. The more links there are, the longer a sample takes, and the longer is
the pause behind it: sampling costs at most 2 % of a core.
"""

import csv
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

from linux.files.user_files import cleared
from linux.network.proc_net import parse_carried
from model.fabric.topology import Link
from model.measurement.records import LinkSample

EVERY_S = 0.01
# The pause after a sample, as a multiple of the processor time that it took.
PAUSE = 50
# Of the thread that reads it, in the namespace of the switches: upper ends of links are there.
COUNTERS = Path("/proc/thread-self/net/dev")


class LinkSampler:
    """A thread that samples the links for as long as the context lasts."""

    def __init__(self, links: Sequence[Link]) -> None:
        self._names = {link.upper.interface: link.name for link in links}
        self._samples: list[tuple[int, dict[str, tuple[int, int]]]] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="link-sampler", daemon=True)

    def __enter__(self) -> "LinkSampler":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        pause_s = 0.0
        while not self._stopped.wait(pause_s):
            begun_s = time.thread_time()
            self._samples.append((time.monotonic_ns(), parse_carried(COUNTERS.read_text())))
            pause_s = max(EVERY_S, PAUSE * (time.thread_time() - begun_s))

    def samples(self) -> Iterator[LinkSample]:
        """Yield the bytes that each link had carried at each sample; gone links are left out."""
        for ns, carried in self._samples:
            for interface, (received, sent) in carried.items():
                if interface in self._names:
                    yield LinkSample(self._names[interface], ns, sent, received)


@contextmanager
def sampling_links(links: Sequence[Link], place: Path) -> Iterator[None]:
    """Sample within the context; write the samples as a CSV file even after an error."""
    sampler = LinkSampler(links)
    try:
        with sampler:
            yield
    finally:
        with cleared(place / "links.csv").open("x", newline="") as file:
            rows = csv.writer(file)
            rows.writerow([field.name for field in fields(LinkSample)])
            rows.writerows(vars(sample).values() for sample in sampler.samples())
