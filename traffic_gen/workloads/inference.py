"""A request load of inference: prefill in one HB domain, decoding in another one.

Every HB domain serves. Its GPUs hold replicas of the model, each on `tensor` neighbouring rails
(tensor parallelism). A request's prompt is computed by one replica, and its answer by another one,
which needs the KV cache (prefill and decoding apart: arXiv 2311.18677). Each GPU sends its shard of
it along its own rail, so the rails carry equally much: that of its heads of keys and values, which
several GPUs may share, or a whole latent state.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import log, sqrt

import numpy as np

from model.arrays import Floats, Ints
from model.workload.schedule import RequestSteps
from model.workload.transfers.columns import Transfer, Transfers
from traffic_gen.workloads.task import Task


@dataclass(frozen=True)
class Arrivals:
    """The requests of a load: how many a second (a Poisson process), and the tokens of prompts.

    Tokens are distributed log-normally, with a mean and a variation: the standard deviation over
    the mean; with 0, all prompts have the same length.
    """

    requests: int
    rate: float
    prompt: float
    prompt_variation: float
    seed: int

    def drawn(self, others: int) -> tuple[Floats, Floats, Ints]:
        """Draw arrivals in seconds, tokens, and one of `others` domains for each request."""
        generator, count = np.random.default_rng(self.seed), self.requests
        arrival_s = np.cumsum(generator.exponential(1 / self.rate, count))
        spread = log(1 + self.prompt_variation**2)
        tokens = self.prompt * generator.lognormal(-spread / 2, sqrt(spread), count)
        return arrival_s, np.maximum(1.0, tokens), generator.integers(others, size=count)


@dataclass(frozen=True)
class RequestLoad(Task):
    """Requests on the GPUs of a job, which are numbered domain after domain.

    `algorithm` is the name of the model that is served, `token_bytes` the KV cache of a token in
    `shards` that differ; where the `tensor` GPUs of a replica are more, several have the same.
    `left_out` are remarks on the model's own file.
    """

    key = "inference"
    algorithm: str
    arrivals: Arrivals
    token_bytes: float
    tensor: int
    shards: int
    domains: int
    domain_size: int
    left_out: tuple[str, ...] = ()

    @property
    def size_name(self) -> str:
        """The rate, the GPUs of a replica, and the seed."""
        arrivals = self.arrivals
        return f"{arrivals.rate:g}-a-second-t{self.tensor}-seed{arrivals.seed}"

    @property
    def size_bytes(self) -> float:
        """Real bytes of all requests."""
        return self.tensor * float(self._requests[1].sum()) / self.shards

    @property
    def largest_bytes(self) -> float:
        """The most real bytes that one transfer may have."""
        return float(self._requests[1].max()) / self.shards

    @property
    def last_arrival_s(self) -> float:
        """Real seconds until the last request arrives."""
        return float(self._requests[0][-1])

    def steps(self, size_scale: float = 1.0, time_dilation: float = 1.0) -> RequestSteps:
        """Build and prove the steps: bytes divided by a scale, times multiplied by a dilation."""
        arrival_s, real_bytes, _ = self._requests
        arrival_ns = np.maximum(1, np.rint(arrival_s * time_dilation * 1e9)).astype(np.int64)
        shards = np.maximum(1, np.ceil(real_bytes / self.shards / size_scale)).astype(np.int64)
        transfers = Transfers.of(self._steps(arrival_ns, shards))
        return RequestSteps(
            algorithm=self.algorithm,
            gpus=self.domains * self.domain_size,
            size_bytes=int(transfers.size_bytes.sum()),
            transfers=transfers,
            arrival_ns=arrival_ns,
            request=np.repeat(np.arange(len(shards)), 2 * self.tensor),
        )

    @cached_property
    def _requests(self) -> tuple[Floats, Floats, Ints]:
        """Return the arrival in seconds, the real bytes, and the drawn domain of each request."""
        arrival_s, tokens, others = self.arrivals.drawn(self.domains - 1)
        return arrival_s, tokens * self.token_bytes, others

    def _steps(self, arrival_ns: Ints, shard_bytes: Ints) -> Iterator[Transfer]:
        """Yield the arrival of each request at all senders, then a transfer of each of them.

        Replicas compute prompts in turn, domain after domain; the domain that decodes is drawn.
        Transfers of the same pair of GPUs go one after the other.
        """
        last: dict[tuple[int, int], int] = {}
        columns = self._requests[2], arrival_ns, shard_bytes
        requests = zip(*(column.tolist() for column in columns), strict=True)
        for request, (other, moment_ns, size) in enumerate(requests):
            of_domain, domain = divmod(request, self.domains)
            replica = of_domain % (self.domain_size // self.tensor)
            senders = self._gpus(domain, replica)
            receivers = self._gpus((domain + 1 + other) % self.domains, replica)
            arrival = 2 * self.tensor * request
            for number, gpu in enumerate(senders, arrival):
                yield Transfer(number, gpu, gpu, 0, (), compute_ns=moment_ns)
            for number, pair in enumerate(zip(senders, receivers, strict=True), arrival):
                before = (last[pair],) if pair in last else ()
                last[pair] = number + self.tensor
                yield Transfer(last[pair], *pair, size, (), (number, *before))

    def _gpus(self, domain: int, replica: int) -> range:
        first = domain * self.domain_size + replica * self.tensor
        return range(first, first + self.tensor)
