"""Models' own files: `config.json` of HuggingFace, SimAI's and AICB's, Megatron's, and Calculon's.

A key that changes sizes is used, refused, or told as a remark; others are left alone.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ruamel.yaml.comments import CommentedMap

from model.errors import InputError, Problem
from scenarios.format.document import Document
from scenarios.format.issues import Place

# Activation functions that are a gate, in GPT's models by their name alone, or have none.
GATES_OF_GPT = ("swiglu", "geglu")
GATES = ("silu", "swish", *GATES_OF_GPT)
WITHOUT_GATE = ("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "quick_gelu", "relu", "relu2")
ACTIVATION = ("hidden_act", "hidden_activation", "activation_function", "activation")
# Models whose blocks have a gate whatever their activation function, beside all that TIED and
# UNTIED name; and those among these that have none: `transformers/models/*/modeling_*.py`.
GATED = ("gemma", "grok", "modernbert", "vaultgemma")
UNGATED = re.compile(
    r"apertus|arcee|bert|bloom|codegen|falcon|gpt2|gpt_bigcode|gpt_neox?|gptj|mpt|nemotron|"
    r"openai-gpt|opt|persimmon|phi|starcoder2"
)
# The names of a configuration's key in any of these files; the first one there is used.
NAMES = {
    key: names.split()
    for key, names in {
        "layers": "num_hidden_layers num_layers n_layer num_blocks",
        "hidden": "hidden_size n_embd n_embed hidden",
        "heads": "num_attention_heads n_head attn_heads head_num num_heads",
        # Megatron's files have the positions that a model could have, too.
        "sequence": "seq_length seq_size max_position_embeddings n_positions",
        "vocabulary": "vocab_size padded_vocab_size",
        "key_value_heads": "num_key_value_heads num_kv_heads n_head_kv multi_query_group_num "
        "num_query_groups num_attention_groups",
        "head_size": "head_dim attn_size kv_channels",
        # Of Llama 4, whose experts have `intermediate_size`, and one of them is shared.
        "feed_forward": "intermediate_size_mlp intermediate_size n_inner feedforward "
        "ffn_hidden_size ffn_dim",
        "latent.key_value_rank": "kv_lora_rank d_kv_c attention_kv_lora_dim",
        "latent.query_rank": "q_lora_rank d_q_c attention_q_lora_dim",
        "latent.plain_size": "qk_nope_head_dim d_q attention_qk_dim",
        "latent.rotary_size": "qk_rope_head_dim d_r attention_qk_rope_dim",
        "latent.value_size": "v_head_dim d_kv attention_v_dim",
        # AICB's `num_experts` counts duplicates of the router's experts, too.
        "moe.experts": "router_expert n_routed_experts num_routed_experts num_local_experts "
        "num_experts num_moe_experts n_experts moe_num_experts",
        "moe.top_k": "num_experts_per_tok num_experts_per_token moe_router_topk moe_topk "
        "experts_per_token moe_k",
        "moe.width": "moe_intermediate_size moe_ffn_hidden_size expert_dim intermediate_size "
        "ffn_hidden_size",
        # The last ones are widths of all shared experts together, from which their number follows.
        "moe.shared_experts": "n_shared_experts num_shared_experts shared_experts "
        "num_shared_expert moe_num_shared_experts shared_expert_intermediate_size "
        "shared_intermediate_size moe_shared_expert_intermediate_size",
        "moe.dense_layers": "first_k_dense_replace num_dense_layers dense_layer "
        "moe_layer_start_index mlp_layer_types mlp_only_layers",
        "moe.every": "decoder_sparse_step moe_layer_freq interleave_moe_layer_step "
        "moe_layer_frequency moe_layer_interval is_moe_layer",
    }.items()
}
# The name that is asked for, where it is not the first one.
ASKED_AS = {
    "sequence": "max_position_embeddings",
    "feed_forward": "intermediate_size",
    "moe.experts": "num_experts",
}
REQUIRED = ("layers", "hidden", "heads", "sequence", "vocabulary", "feed_forward")
# In files with one of these keys, experts have a width of their own.
WITH_OWN_WIDTH = (
    *("n_routed_experts", "num_routed_experts", "moe_num_experts"),
    *("decoder_sparse_step", "first_k_dense_replace"),
)
OWN_WIDTH = NAMES["moe.width"][:3]
LATENT = [key for key in NAMES if key.startswith("latent.")]
# Alone, it is the size of values in attention that is not latent.
VALUES = "latent.value_size"
SHARED_NUMBER, SHARED_WIDTH = NAMES["moe.shared_experts"][:-3], NAMES["moe.shared_experts"][-3:]
# Names that mean the same, of which the first one there is used.
SYNONYMS = (
    *(NAMES | {"moe.width": OWN_WIDTH, "moe.shared_experts": SHARED_NUMBER}).values(),
    *(SHARED_WIDTH, ACTIVATION),
)
DENSE_WIDTH = "intermediate_size_mlp"
# Keys of Calculon and of GPT-2, whose models have biases; and kinds with learned positions.
OF_GPT = ("attn_heads", "n_head")
LEARNED_POSITIONS = ("bert", "gpt2", "gpt_bigcode", "gpt_neo", "openai-gpt", "opt")
# Models as wide as GPT-2, four times the hidden state, if they say nothing else.
FOUR_TIMES = ("falcon", "bloom", "gpt_neo")
# Models whose embeddings are tied, or not, if they say nothing else: the defaults of the classes
# in `transformers/models/*/configuration_*.py`, version 5.24; `deepseek`, `kimi_k2`, `arctic`,
# `internlm2` and `baichuan`: of the code beside their files.
TIED = re.compile(
    r"bert|bloom|cohere2?|ernie4_5(_moe)?|falcon|gemma2?|gemma3(_text)?|gemma3n_text|gpt2|"
    r"gpt_bigcode|gpt_neo|lfm2(_moe)?|mpt|openai-gpt|opt|smollm3|starcoder2"
)
UNTIED = re.compile(
    r"afmoe|apertus|arcee|arctic|baichuan|bitnet|codegen|dbrx|deepseek(_v2|_v3|_v32)?|dots1|"
    r"exaone4|glm4?|glm4_moe|gpt_neox|gpt_oss|gptj|granite|granitemoe(shared)?|hunyuan_v1_(dense|moe)|"
    r"internlm[23]|kimi_k2|llama|llama4_text|minimax(_m2)?|ministral|mistral|mixtral|nemotron|"
    r"olmo[23]?|olmoe|persimmon|phi3?|phimoe|qwen[23](_moe)?|seed_oss|stablelm"
)
# What published files leave out, as they have the values of their class, in the same folder.
GEMMA_3 = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "vocab_size": 262208,
}
DEFAULTS: dict[str, dict[str, Any]] = {
    "falcon": {"multi_query": True},
    "gemma": {"head_dim": 256},
    "gemma2": {"head_dim": 256},
    "gemma3": GEMMA_3,
    "gemma3_text": GEMMA_3,
    "gpt_bigcode": {"multi_query": True},
    "gpt_oss": {"head_dim": 64, "num_key_value_heads": 8},
    "mistral": {"num_key_value_heads": 8},
    "mixtral": {"num_key_value_heads": 8},
    "qwen3": {"head_dim": 128},
}
# Parts of a model that are not modeled, and what is instead; attention that reads some tokens.
ALL_TOKENS = "attention reads all tokens"
IMAGES, PREDICTION = "images are left out", "multi-token prediction is left out"
LEFT_OUT = {
    **dict.fromkeys(("vision_config", "visual_tokenizer_config", "vit_config"), IMAGES),
    **dict.fromkeys(("mm_vision_tower", "img_processor"), IMAGES),
    **dict.fromkeys(("audio_config", "audio_processor"), "audio is left out"),
    **dict.fromkeys(("num_nextn_predict_layers", "num_mtp_modules", "num_mtp_layers"), PREDICTION),
    "use_cla": "each layer has keys and values of its own",
    "index_topk": ALL_TOKENS,
    "quantization_config": "the model is computed in bf16",
}
# What models of a class have without a key: `transformers/models/*/modeling_*.py`.
LEFT_OUT_OF_CLASS = {"afmoe": "the gate of attention's output"}
WINDOWS = {"sliding_window": ALL_TOKENS, "attention_chunk_size": ALL_TOKENS}
# Layers other than attention and a feed-forward block, of several sizes, with shared weights or
# repeated, embeddings of each layer, experts by other keys, an encoder, text deep in other parts.
UNKNOWN = re.compile(
    r"is_encoder_decoder|linear_attn_config|linear_num_value_heads|compress_ratios|o_lora_rank|"
    r"attn_mode|layer_group_size|qk_dim_factor|rescale_every|ssm_cfg|thinker_config|"
    r"global_head_dim|hidden_size_per_layer_input|num_hidden_groups|num_kv_shared_layers|"
    r"(num|intermediate)_\w+_per_layer|per_layer_config|total_ut_steps|"
    r"mamba_\w+|ssm_state_size|state_size|lru_width|hybrid_override_pattern|layers_block_type|"
    r"block_configs|conv_L_cache|parallel_attn_mlp_res|residual_moe|enable_moe_block|"
    r"moe_layers_enum|expert_layer_period|zero_expert_num|ffn_config|laurel_rank"
)
# Models whose keys have other meanings: experts of attention, half of the feed-forward's width.
UNKNOWN_KINDS = ("jetmoe", "molmo", "qwen")
# The width of embeddings, where they have one of their own.
EMBEDDED = "word_embed_proj_dim"
# The kinds of layers that are attention.
ATTENTION = {
    "layer_types": ("attention", "full_attention", "sliding_attention", "chunked_attention"),
    "attn_type_list": (1,),
}
# A key with one of these words and a number, or a list, is a size; these change none.
SIZE = re.compile(
    r"expert|moe|layer|block|head|hidden|dim|size|width|rank|inner|ffn|mlp|kv|query_group|^d_"
)
NO_SIZES = re.compile(
    r"layer_types|attn_type_list|max_window_layers|no_rope_layers|no_rope_layer_interval|"
    r"moe_layers|rotary_dim|ep_size|sliding_window_size|duped_expert|index_head_dim|index_n_heads|"
    r"qk_head_dim|global_attn_every_n_layers"
)
# Keys of models with experts alone.
OF_EXPERTS = re.compile(r"expert|^moe_|^first_k_dense_replace$")
READ = {*(name for names in NAMES.values() for name in names), *LEFT_OUT, *WINDOWS, EMBEDDED}
# For a model that reads more tokens than anybody trains with.
OWN_SEQUENCE = "give the tokens of a sequence: `--sequence`, or `sequence` in YAML"
# What these files never say.
ASKED = {
    "batch": "the sequences of an iteration",
    "gpus": "the number of GPUs",
    "platform": "the platform, such as dgx-h100",
}
# The language model of several in a file, and whether its embeddings are tied.
TEXTS, TIES = ("text_config", "llm_config", "language_config"), "tie_word_embeddings"
IN_YAML = "describe what is modeled of it in a YAML file: docs/reference/training.md"
WORD = re.compile(r"[\w.]+")


@dataclass(frozen=True, kw_only=True)
class ModelDocument(Document):
    """A training configuration, and the model's file it was made of, whose keys messages name."""

    model: "_Model"

    def where(self, place: Place) -> str:
        """File, line and key of a value, as the file has it."""
        key = self.model.keys.get(".".join(map(str, place)))
        return self.model.where(key) if key else self.model.document.where(place)

    def problem(self, place: Place, what: str, hint: str = "") -> Problem:
        """A problem of a value, in words of the file."""
        what = WORD.sub(lambda word: self.model.keys.get(word[0], word[0]), what)
        return super().problem(place, what, OWN_SEQUENCE if place == ("sequence",) else hint)


def configuration_document(document: Document, given: Mapping[str, Any]) -> ModelDocument:
    """The training configuration of a model's file, with keys that are given beside it.

    Raises `InputError` that names everything that is missing.
    """
    model = _Model(document)
    if wrong := list(model.refused()) or list(model.missing(given)):
        raise InputError(*wrong)
    values = CommentedMap({**model.configuration(), **given})
    return ModelDocument(document.path, document.text, values, model=model)


def remarks(document: Document) -> list[str]:
    """A sentence for each part of a model's file that is not modeled, or assumed beside it."""
    return list(_Model(document).remarks())


class _Model:
    """The language model of a file, where it has several, with the defaults of its class."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.inside: Place = ()
        self.own: Mapping[str, Any] = document.values
        inner = (key for key in TEXTS if isinstance(document.values.get(key), Mapping))
        if text := next(inner, None):
            shared = ("model_type", TIES)
            outer = {key: document.values[key] for key in shared if key in document.values}
            self.own, self.inside = {**outer, **document.values[text]}, (text,)
        self.kind = str(self.own.get("model_type") or "")
        self.values: dict[str, Any] = {**DEFAULTS.get(self.kind, {}), **self.own}
        layers = self._first(NAMES["layers"])
        self.found = {key: _one_of(self._first(names), layers) for key, names in NAMES.items()}
        if self._first(WITH_OWN_WIDTH) is not None:
            self.found["moe.width"] = _one_of(self._first(OWN_WIDTH), layers)
        self.latent = [key for key in LATENT if self._has(key)]
        is_gpt = not self.kind or self.gate_of_class is False
        self.is_gpt = is_gpt and self._first(OF_GPT) is not None
        self.activation = self._first(ACTIVATION)
        # The widths of all shared experts together, and of an expert; 0 where there is none.
        widths = self._first(SHARED_WIDTH), self.found["moe.width"]
        self.shared, self.one = (width if isinstance(width, int) else 0 for width in widths)

    def _first(self, names: Sequence[str]) -> Any:
        """The first value that has one of these names."""
        return next((v for name in names if (v := self.values.get(name)) is not None), None)

    def _has(self, key: str) -> bool:
        """Whether the file has a part, by its number; a value of another kind is refused later."""
        return self.found[key] not in (None, 0)

    @cached_property
    def keys(self) -> dict[str, str]:
        """The file's keys by those of a configuration, with and without their section."""
        there = {name for name, value in self.values.items() if value is not None}
        keys = {
            key: next((name for name in names if name in there), _asked(key))
            for key, names in NAMES.items()
        }
        inner = {key.partition(".")[2]: name for key, name in keys.items() if "." in key}
        return {**inner, **keys, "moe": keys["moe.experts"], "tied": TIES}

    @property
    def said_tied(self) -> Any:
        """Whether embeddings are tied, by the file or by its class; `None` if neither is known."""
        said, untied = map(self.values.get, (TIES, "untie_embeddings_and_output_weights"))
        if said is not None:
            return said
        if isinstance(untied, bool):
            return not untied
        if UNTIED.fullmatch(self.kind):
            return False
        return True if TIED.fullmatch(self.kind) or (not self.kind and self.is_gpt) else None

    @property
    def tied(self) -> Any:
        """As said; else as in the base class of transformers, if the file is of one of these."""
        return bool(self.kind) if self.said_tied is None else self.said_tied

    @property
    def gate_of_class(self) -> bool | None:
        """Whether blocks have a gate in the model's class; `None` if the class is not known."""
        if self.kind.startswith(GATED):
            return True
        is_known = TIED.fullmatch(self.kind) or UNTIED.fullmatch(self.kind)
        return not UNGATED.fullmatch(self.kind) if is_known else None

    def remarks(self) -> Iterator[str]:
        """Yield a sentence for each part that is not modeled, or assumed."""
        name, everything = self.document.path.name, {**self.document.values, **self.values}
        parts = LEFT_OUT | (WINDOWS if self.values.get("use_sliding_window", True) else {})
        for key, instead in parts.items():
            if value := everything.get(key):
                method = value.get("quant_method") if isinstance(value, Mapping) else None
                how = f" ({method})" if method else ""
                yield f"{key}{how} of {name} is not modeled: {instead}"
        if part := LEFT_OUT_OF_CLASS.get(self.kind):
            yield f"{part} of {self.kind} is not modeled"
        assumed = [f"{key} {value}" for key, value in self.values.items() if key not in self.own]
        if assumed:
            lacking = f"keys that {name} lacks have the defaults of {self.kind}"
            yield f"{lacking}: {', '.join(assumed)}"
        if self.said_tied is None:
            tied = "tied" if self.tied else "untied"
            yield f"{tied} embeddings are assumed, as {name} has no {TIES}"
        for unused, used in self._unused():
            yield f"{unused} of {name} is unused, and differs from {used}"
        if unread := [key for key, value in self.values.items() if _is_unread_size(key, value)]:
            yield f"keys of {name} look like sizes, but are unknown and unused: {', '.join(unread)}"

    def _unused(self) -> Iterator[tuple[str, str]]:
        """Yield each name with another value than the one before it that means the same."""
        layers = self.found["layers"]
        # Llama 4 has the width of experts by the name that others have for the dense layers'.
        of_experts = self.keys["moe.width"] if self._has("moe.experts") else None
        for names in SYNONYMS:
            values = {name: _one_of(self.values.get(name), layers) for name in names}
            there = [name for name in names if values[name] is not None]
            for name in there[1:]:
                if values[name] != values[there[0]] and name != of_experts:
                    yield name, there[0]

    def refused(self) -> Iterator[Problem]:
        """Yield a problem for each part of the model that is not modeled."""
        for key, value in self.values.items():
            if value and UNKNOWN.fullmatch(str(key)):
                yield self._problem(key, "names a part of a model that is not modeled")
        if self.kind in UNKNOWN_KINDS:
            yield self._problem("model_type", f"names a model that is not modeled, {self.kind}")
        for key, known in ATTENTION.items():
            kinds = self.values.get(key)
            if isinstance(kinds, list) and (others := [str(k) for k in kinds if k not in known]):
                what = f"has layers that are not modeled: {', '.join(dict.fromkeys(others))}"
                yield self._problem(key, what)
        hidden, width = self.found["hidden"], self.values.get(EMBEDDED)
        if None not in (hidden, width) and width != hidden:
            what = f"must be {self.keys['hidden']}, {hidden}, as no other is modeled, got {width}"
            yield self._problem(EMBEDDED, what)
        if self.latent == [VALUES]:
            yield self._problem(self.keys[VALUES], "names a part of a model that is not modeled")
        if self.shared and self.one and self.shared % self.one:
            name = next(name for name in SHARED_WIDTH if self.values.get(name))
            what = f"must be a multiple of an expert's width, {self.one}, got {self.shared}"
            yield self._problem(name, what)

    def where(self, key: str) -> str:
        """File, line and key of a value."""
        return self.document.where((*self.inside, key))

    def _problem(self, key: str, what: str) -> Problem:
        return Problem(self.where(key), what, IN_YAML)

    def missing(self, given: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield a problem for each size and other key that a configuration needs."""
        path = self.document.path
        for key, reason in self._required(given).items():
            may_be_null = key == "latent.query_rank" and any(n in self.values for n in NAMES[key])
            if self.found[key] is None and not may_be_null:
                hint = OWN_SEQUENCE if key == "sequence" else "add it to the file"
                yield Problem(f"{path} {_asked(key)}", f"is required{reason}", hint)
        act, known = self.activation, (*GATES, *WITHOUT_GATE)
        if act not in known and self.gate_of_class is None and not self.is_gpt:
            problem = "is required" if act is None else f"is not known, got {act!r}"
            hint = f"with a gate: {', '.join(GATES)}; without: {', '.join(WITHOUT_GATE)}"
            yield Problem(f"{path} {ACTIVATION[0]}", problem, hint)
        for key, what in ASKED.items():
            if key not in given:
                hint = f"give it: `--{key}`, or `{key}` of an iteration"
                yield Problem(str(path), f"does not say {what}", hint)

    def _required(self, given: Mapping[str, Any]) -> dict[str, str]:
        """The sizes that this model needs, each with its reason."""
        required = {key: "" for key in REQUIRED if key not in given}
        is_gpt = self.is_gpt and "n_embd" in self.values
        if is_gpt or "n_inner" in self.values or self.kind in FOUR_TIMES:
            required.pop("feed_forward", None)
        if self._has("moe.experts"):
            required |= dict.fromkeys(("moe.top_k", "moe.width"), f" with {self.keys['moe']}")
        if not any(name in self.values for name in NAMES["moe.experts"]):
            # A key that only a model with experts has, in a file that does not say how many.
            of_experts = (k for k, v in self.values.items() if v and OF_EXPERTS.search(str(k)))
            if key := next(of_experts, None):
                required["moe.experts"] = f" with {key}"
        if self.latent:
            required |= dict.fromkeys(LATENT, f" with {self.keys[self.latent[0]]}")
        return required

    def configuration(self) -> dict[str, Any]:
        """The keys of a training configuration."""
        found = {key: value for key, value in self.found.items() if "." not in key}
        if self.values.get("group_query_attention") is False:
            found["key_value_heads"] = None
        if self.values.get("multi_query") and not self.values.get("new_decoder_architecture"):
            found["key_value_heads"] = 1
        gates = GATES_OF_GPT if self.is_gpt else GATES
        by_class = self.gate_of_class
        found |= {
            "gated": self.activation in gates if by_class is None else by_class,
            "biases": self.is_gpt,
            "learned_positions": self.kind in LEARNED_POSITIONS if self.kind else self.is_gpt,
            "tied": self.tied,
            "fused_attention": True,
        }
        if self._has("latent.key_value_rank"):
            found["latent"] = {"query_rank": 0, **self._section("latent.")}
        if self._has("moe.experts"):
            found["moe"] = experts = self._section("moe.")
            # Files also say layers by their numbers or one by one, and shared experts by width.
            if isinstance(dense := self.found["moe.dense_layers"], list):
                experts["dense_layers"] = len(dense)
            if _says_each(every := self.found["moe.every"], self.found["layers"]):
                experts |= {"every": 1, "dense_layers": every.count(0)}
            if DENSE_WIDTH in self.values:
                experts["shared_experts"] = 1
            elif self.shared and self.one:
                experts["shared_experts"] = self.shared // self.one
        return {key: value for key, value in found.items() if value is not None}

    def _section(self, name: str) -> dict[str, Any]:
        inside = {key: self.found[key] for key in self.found if key.startswith(name)}
        return {key.removeprefix(name): inside[key] for key in inside if inside[key] is not None}


def _one_of(value: Any, layers: Any) -> Any:
    """The number that a list has for each of the layers, or of dense ones among their kinds.

    Any other value as it is.
    """
    if isinstance(value, list) and value and all(kind in ("dense", "sparse") for kind in value):
        return value.count("dense")
    is_one = isinstance(value, list) and value and len(value) == layers == value.count(value[0])
    return value[0] if is_one and type(value[0]) is int else value


def _says_each(value: Any, layers: Any) -> bool:
    """Whether a list says of each of the layers if it has experts."""
    return isinstance(value, list) and len(value) == layers and all(one in (0, 1) for one in value)


def _is_unread_size(key: str, value: object) -> bool:
    is_number = isinstance(value, int) and value is not True and value > 0
    is_known = key in READ or NO_SIZES.fullmatch(str(key))
    is_size = is_number or (isinstance(value, list) and value)
    return bool(is_size and SIZE.search(str(key)) and not is_known)


def _asked(key: str) -> str:
    return ASKED_AS.get(key, NAMES[key][0])
