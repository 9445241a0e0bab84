"""Partitions: rectangles of the grid of GPUs, one for each of several jobs."""

from dataclasses import dataclass

from model.job.communicators import Shape

Span = tuple[int, int]
"""The first and the last of consecutive numbers."""


@dataclass(frozen=True)
class Partition:
    """The GPUs of consecutive rails in consecutive HB domains.

    A rail-only fabric without failures carries the traffic between two of them on links of the
    partition alone: the transit GPU has the domain of one GPU and the rail of the other.
    """

    domains: Span
    rails: Span

    @property
    def shape(self) -> Shape:
        """Number of domains, and of GPUs in each."""
        return self.domains[1] - self.domains[0] + 1, self.rails[1] - self.rails[0] + 1

    def ranks(self, domain_size: int) -> tuple[int, ...]:
        """Return its ranks in a grid with `domain_size` GPUs in a domain, in their order."""
        return tuple(
            domain * domain_size + rail
            for domain in range(self.domains[0], self.domains[1] + 1)
            for rail in range(self.rails[0], self.rails[1] + 1)
        )

    def is_within(self, shape: Shape) -> bool:
        """Whether a grid has all of its GPUs."""
        return self.domains[1] < shape[0] and self.rails[1] < shape[1]

    def overlaps(self, other: "Partition") -> bool:
        """Whether some GPU is in both."""
        return _meet(self.domains, other.domains) and _meet(self.rails, other.rails)

    def __str__(self) -> str:
        """Domains and rails, as a scenario has them."""
        return f"domains {written(self.domains)}, rails {written(self.rails)}"


def written(span: Span) -> str:
    """Return a span as a scenario has it: `2`, or `0-3`."""
    first, last = span
    return f"{first}" if first == last else f"{first}-{last}"


def _meet(one: Span, other: Span) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]
