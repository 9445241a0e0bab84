"""The transformer: its parameters, and the FLOPs of an iteration.

MegatronLM (arXiv 2104.04473, section 5.1 and appendix), Korthikanti et al. (arXiv 2205.05198).
"""

from dataclasses import dataclass, replace
from enum import StrEnum


class Recomputation(StrEnum):
    """The activations that the backward pass computes again instead of storing them."""

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


@dataclass(frozen=True)
class Experts:
    """Experts in every `every`-th layer; each token visits `top_k` of them.

    An expert computes `capacity` times its even share of tokens.
    """

    every: int
    count: int
    top_k: int
    capacity: float
    parallel: int

    @property
    def visits(self) -> float:
        """Experts that compute a token, padding included."""
        return self.top_k * self.capacity


@dataclass(frozen=True)
class Transformer:
    """A GPT-like transformer."""

    layers: int
    hidden: int
    heads: int
    sequence: int
    vocabulary: int
    experts: Experts | None = None

    @property
    def expert_layers(self) -> int:
        """The number of layers whose feed-forward block is experts."""
        return self.layers // self.experts.every if self.experts else 0

    @property
    def shared_parameters(self) -> float:
        """Parameters outside experts: 12 L h² (1 + 13/(12h) + (V + s)/(12 L h)) without experts.

        The feed-forward block has 8 h² + 5 h of a layer's 12 h² + 13 h.
        """
        of_layers = self.layers * (12 * self.hidden**2 + 13 * self.hidden)
        embedding = (self.vocabulary + self.sequence) * self.hidden
        return of_layers + embedding - self.expert_layers * self._feed_forward

    @property
    def expert_parameters(self) -> float:
        """Parameters of all experts of all layers."""
        return self.expert_layers * self._feed_forward * self.experts.count if self.experts else 0

    @property
    def parameters(self) -> float:
        """All parameters."""
        return self.shared_parameters + self.expert_parameters

    @property
    def cache_bytes(self) -> float:
        """Bytes of a token's keys and values of 16 bit in all layers, the KV cache: 4 L h."""
        return 4 * self.layers * self.hidden

    @property
    def _feed_forward(self) -> float:
        return 8 * self.hidden**2 + 5 * self.hidden

    @property
    def attention(self) -> float:
        """FLOPs of attention's two products, as a share of a layer's other products: s/(6h)."""
        return self.sequence / (6 * self.hidden)

    @property
    def feed_forward_work(self) -> float:
        """Products of a mean layer, as a multiple of those of a layer without experts.

        The feed-forward block does two thirds of them.
        """
        if self.experts is None:
            return 1.0
        share = self.expert_layers / self.layers
        return 1 + share * 2 / 3 * (self.experts.visits - 1)

    def layer_flops(self, sequences: float) -> float:
        """FLOPs of a mean layer's forward pass: 24 b s h² (1 + s/(6h)) without experts."""
        products = 24 * sequences * self.sequence * self.hidden**2
        return products * (self.feed_forward_work + self.attention)

    def attention_flops(self, sequences: float) -> float:
        """FLOPs of attention's two products of a layer's forward pass: 4 b s² h."""
        return 4 * sequences * self.sequence**2 * self.hidden

    def head_flops(self, sequences: float) -> float:
        """FLOPs of the logits' forward and backward pass: 6 b s h V."""
        return 6 * sequences * self.sequence * self.hidden * self.vocabulary

    def model_flops(self, batch: float) -> float:
        """FLOPs that an iteration needs: 72 B L s h² (1 + s/(6h) + V/(12 h L)).

        The padding of experts whose capacity is above 1 is computed, but nobody needs it.
        """
        return self._without_padding.computed_flops(batch)

    @property
    def _without_padding(self) -> "Transformer":
        if self.experts is None:
            return self
        capacity = min(1.0, self.experts.capacity)
        return replace(self, experts=replace(self.experts, capacity=capacity))

    def computed_flops(self, batch: float) -> float:
        """FLOPs that an iteration computes once: three times a forward pass, and the logits."""
        return 3 * self.layers * self.layer_flops(batch) + self.head_flops(batch)

    def hardware_flops(self, batch: float, recomputation: Recomputation) -> float:
        """FLOPs that an iteration counts as computing, recomputed ones included.

        As published: 72 B L s h² (1 + s/(3h) + V/(12 h L)) with selective recomputation, which
        counts attention's products six times and not four times; 96 B L s h² (1 + s/(6h) +
        V/(16 L h)) with full recomputation.
        """
        again = {
            Recomputation.NONE: 0.0,
            Recomputation.SELECTIVE: 3 * self.attention_flops(batch),
            Recomputation.FULL: self.layer_flops(batch),
        }
        return self.computed_flops(batch) + self.layers * again[recomputation]
