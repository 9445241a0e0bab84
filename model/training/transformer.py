"""The transformer: its parameters, and the FLOPs of an iteration.

MegatronLM (arXiv 2104.04473, section 5.1 and appendix), Korthikanti et al. (arXiv 2205.05198),
DeepSeek-V2 and V3 (arXiv 2405.04434, 2412.19437). A model without other sizes is a GPT.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property


class Recomputation(StrEnum):
    """The activations that the backward pass computes again instead of storing them."""

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


@dataclass(frozen=True)
class Experts:
    """Experts in every `every`-th layer behind `dense_layers`; a token visits `top_k` of them.

    An expert computes `capacity` times its even share of tokens; 1 without padding. `width` is by
    default the feed-forward block's. All tokens visit `shared` experts more.
    """

    every: int
    count: int
    top_k: int
    capacity: float = 1.0
    width: int | None = None
    shared: int = 0
    dense_layers: int = 0

    @property
    def visits(self) -> float:
        """Experts that compute a token, padding included, without shared ones."""
        return self.top_k * self.capacity


NO_EXPERTS = Experts(every=1, count=0, top_k=0)


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention: queries, and keys with values, by way of narrower states.

    `query_rank` and `key_value_rank` are the narrower states' widths; a query rank of 0 makes
    queries from the hidden state itself. A head's query and key have a plain and a rotary part, of
    which all heads share the key's rotary part (DeepSeek-V2, section 2.1).
    """

    query_rank: int
    key_value_rank: int
    plain_size: int
    rotary_size: int
    value_size: int

    @property
    def cached_width(self) -> int:
        """Elements of a token's narrower state of keys and values, and of the rotary part."""
        return self.key_value_rank + self.rotary_size


@dataclass(frozen=True)
class Transformer:
    """A decoder of `layers` layers.

    By default as wide as in GPT: as many heads of keys and values as of queries, heads that divide
    the hidden state, a feed-forward block of four times its width, one embedding for input and
    logits. `vocabulary` includes padding. `gated` blocks have a third matrix (SwiGLU, arXiv
    2002.05202).
    """

    layers: int
    hidden: int
    heads: int
    sequence: int
    vocabulary: int
    experts: Experts | None = None
    key_value_heads: int | None = None
    head_size: int | None = None
    feed_forward: int | None = None
    gated: bool = False
    latent: Latent | None = None
    tied: bool = True
    biases: bool = True
    learned_positions: bool = True

    @property
    def expert_layers(self) -> int:
        """The number of layers whose feed-forward block is experts."""
        experts = self._experts
        return (self.layers - experts.dense_layers) // experts.every if experts.count else 0

    @property
    def query_width(self) -> float:
        """Elements of a token's queries, all heads together, and of its keys if none are shared."""
        if self.latent:
            return self.heads * (self.latent.plain_size + self.latent.rotary_size)
        return self.heads * self._head_size

    @property
    def value_width(self) -> float:
        """Elements of what attention returns for a token, all heads together."""
        return self.heads * (self.latent.value_size if self.latent else self._head_size)

    @property
    def key_value_width(self) -> float:
        """Elements of a token's keys and values together, as attention reads them."""
        if self.latent:
            return self.query_width + self.value_width
        return 2 * (self.key_value_heads or self.heads) * self._head_size

    def shares_heads(self, tensor: int) -> bool:
        """Whether each of so many ranks has as many heads of keys and values, or a part of one.

        Megatron-LM, `core/transformer/transformer_config.py`.
        """
        count = self.heads if self.latent else self.key_value_heads or self.heads
        return count % tensor == 0 or tensor % count == 0

    @property
    def narrow_width(self) -> float:
        """Elements of a token's queries, keys and values as the hidden state makes them.

        Of latent attention, those of its narrower states.
        """
        if self.latent:
            return (self.latent.query_rank or self.query_width) + self.latent.cached_width
        return self.query_width + self.key_value_width

    @property
    def cache_bytes(self) -> float:
        """Bytes of a token's keys and values of 16 bit in all layers, the KV cache.

        Latent attention keeps the narrow state and the rotary part.
        """
        width = self.latent.cached_width if self.latent else self.key_value_width
        return 2 * self.layers * width

    @property
    def active_width(self) -> float:
        """The width of a mean layer's feed-forward blocks that compute a token."""
        experts = self._experts.visits + self._experts.shared
        return self._mean(self._feed_forward, experts * self._expert_width)

    @property
    def visits(self) -> float:
        """Experts that a token is sent to, in a mean layer, padding included."""
        return self._mean(0.0, self._experts.visits)

    @property
    def split_feed_forward(self) -> float:
        """The share of layers with a feed-forward block that tensor parallelism splits.

        An expert is whole on its GPU; the feed-forward block, and shared experts, are not.
        """
        return self._mean(1.0, 1.0 if self._experts.shared else 0.0)

    @cached_property
    def shared_parameters(self) -> float:
        """Parameters outside experts: 12 L h² (1 + 13/(12h) + (V + s)/(12 L h)) of a GPT."""
        return self.block_parameters + self.embedding_parameters + self.head_parameters

    @cached_property
    def block_parameters(self) -> float:
        """Parameters of all layers, without experts."""
        norms = (4 if self.biases else 2) * self.hidden
        biases = self.query_width + self.key_value_width + self.hidden if self.biases else 0.0
        total = self.layers * (self._attention_weights + biases + norms)
        total += (self.layers - self.expert_layers) * self._block(self._feed_forward)
        shared = self._experts.shared * self._block(self._expert_width)
        return total + self.expert_layers * (self._router_weights + shared)

    @property
    def embedding_parameters(self) -> float:
        """Parameters before the first layer: of tokens and of learned positions."""
        rows = self.vocabulary + (self.sequence if self.learned_positions else 0)
        return rows * self.hidden

    @property
    def head_parameters(self) -> float:
        """Parameters behind the last layer; none if logits use the embedding of the input."""
        return 0.0 if self.tied else self.vocabulary * self.hidden

    @cached_property
    def expert_parameters(self) -> float:
        """Parameters of all experts of all layers, without shared ones."""
        return self.expert_layers * self._experts.count * self._block(self._expert_width)

    @property
    def parameters(self) -> float:
        """All parameters."""
        return self.shared_parameters + self.expert_parameters

    @property
    def active_parameters(self) -> float:
        """The parameters that compute a token, embeddings included."""
        visited = self.expert_layers * self._experts.top_k
        return self.shared_parameters + visited * self._block(self._expert_width)

    def layer_flops(self, sequences: float) -> float:
        """FLOPs of a mean layer's forward pass: 24 b s h² (1 + s/(6h)) of a GPT."""
        weights = self._attention_weights + self._matrices * self.hidden * self.active_width
        weights += self._mean(0.0, self._router_weights)
        return 2 * sequences * self.sequence * weights + self.attention_flops(sequences)

    def attention_flops(self, sequences: float) -> float:
        """FLOPs of attention's two products of a layer's forward pass: 4 b s² h of a GPT.

        All pairs of tokens count, those that are masked too, as published.
        """
        return 2 * sequences * self.sequence**2 * (self.query_width + self.value_width)

    def widening_flops(self, sequences: float) -> float:
        """FLOPs that make queries, keys and values of the narrower states of latent attention."""
        return 2 * sequences * self.sequence * self._widening_weights

    def head_flops(self, sequences: float) -> float:
        """FLOPs of the logits' forward and backward pass: 6 b s h V."""
        return 6 * sequences * self.sequence * self.hidden * self.vocabulary

    def model_flops(self, batch: float) -> float:
        """FLOPs that an iteration needs: 72 B L s h² (1 + s/(6h) + V/(12 h L)) of a GPT.

        The padding of experts whose capacity is above 1 is computed, but nobody needs it.
        """
        experts = replace(self._experts, capacity=min(1.0, self._experts.capacity))
        return replace(self, experts=experts).computed_flops(batch)

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
            Recomputation.SELECTIVE: 3 * self.attention_flops(batch) + self.widening_flops(batch),
            Recomputation.FULL: self.layer_flops(batch),
        }
        return self.computed_flops(batch) + self.layers * again[recomputation]

    @property
    def _experts(self) -> Experts:
        return self.experts or NO_EXPERTS

    @property
    def _router_weights(self) -> int:
        return self._experts.count * self.hidden

    @property
    def _head_size(self) -> float:
        return self.head_size or self.hidden / self.heads

    @property
    def _feed_forward(self) -> int:
        return self.feed_forward or 4 * self.hidden

    @property
    def _expert_width(self) -> int:
        return self._experts.width or self._feed_forward

    @property
    def _matrices(self) -> int:
        """The number of a feed-forward block's matrices."""
        return 3 if self.gated else 2

    @property
    def _attention_weights(self) -> float:
        """Elements of a layer's matrices of attention: 4 h² of a GPT."""
        out = self.value_width * self.hidden
        return self.hidden * self.narrow_width + self._widening_weights + out

    @property
    def _widening_weights(self) -> float:
        """Elements of the matrices behind the narrower states of latent attention."""
        if self.latent is None:
            return 0.0
        heads = self.heads * (self.latent.plain_size + self.latent.value_size)
        return self.latent.query_rank * self.query_width + self.latent.key_value_rank * heads

    def _block(self, width: int) -> float:
        """Parameters of a feed-forward block."""
        biases = (self._matrices - 1) * width + self.hidden if self.biases else 0
        return self._matrices * self.hidden * width + biases

    def _mean(self, dense: float, expert: float) -> float:
        """The mean over layers of what a dense layer has, and what an expert layer has."""
        share = self.expert_layers / self.layers
        return (1 - share) * dense + share * expert
