"""Models' own files: `config.json` of HuggingFace, SimAI's of the same keys, and Calculon's.

Keys that say nothing about sizes are left alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from model.errors import InputError, Problem
from scenarios.format.document import Document

# Activation functions that are a gate, or have none.
GATES = ("silu", "swish", "swiglu", "geglu")
WITHOUT_GATE = ("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "quick_gelu", "relu", "relu2")
ACTIVATION = ("hidden_act", "hidden_activation", "activation_function", "activation")
# In Gemma's models a tanh-GELU is a gate, and embeddings are tied if nothing else is said.
GEMMA = "gemma"
# The names of a size, in any of these files; each is required.
REQUIRED = {
    "layers": ("num_hidden_layers", "num_layers", "n_layer", "num_blocks"),
    "hidden": ("hidden_size", "n_embd", "hidden"),
    "heads": ("num_attention_heads", "n_head", "attn_heads"),
    "sequence": ("max_position_embeddings", "n_positions", "seq_size"),
    "vocabulary": ("vocab_size",),
}
OPTIONAL = {
    "key_value_heads": ("num_key_value_heads", "num_kv_heads"),
    "head_size": ("head_dim", "attn_size"),
    "feed_forward": ("intermediate_size", "n_inner", "feedforward"),
}
LATENT = {
    "query_rank": "q_lora_rank",
    "key_value_rank": "kv_lora_rank",
    "plain_size": "qk_nope_head_dim",
    "rotary_size": "qk_rope_head_dim",
    "value_size": "v_head_dim",
}
EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts")
EVERY = ("decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step")
# The width of Llama 4's dense layers; its experts have `intermediate_size`, one is shared.
DENSE_WIDTH = "intermediate_size_mlp"
# Keys of Calculon and of GPT-2, whose models have biases and learned positions.
OF_GPT = ("attn_heads", "n_head")
# Parts of a model that its size here does not have; attention that reads some tokens alone.
LEFT_OUT = ("vision_config", "audio_config", "num_nextn_predict_layers", "index_topk")
WINDOWS = ("sliding_window", "attention_chunk_size")
# Layers other than attention and a feed-forward block, experts by other keys, an encoder.
UNKNOWN = (
    "is_encoder_decoder",
    "linear_num_value_heads",
    "attn_type_list",
    "mamba_d_state",
    "ssm_state_size",
    "hybrid_override_pattern",
    "moe_num_experts",
    "expert_layer_period",
    "ffn_config",
)
# What these files never say.
ASKED = {
    "batch": "sequences of an iteration",
    "gpus": "the number of GPUs",
    "platform": "the platform, such as dgx-h100",
}


def configuration_values(document: Document, given: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a training configuration, with those that are given beside the file.

    Raises `InputError` that names everything that is missing.
    """
    values = _of_text(document.values)
    unknown = [
        Problem(f"{document.path} {key}", "names a part of a model that is not modeled")
        for key in UNKNOWN
        if values.get(key)
    ]
    missing = [*_missing_sizes(document, values, given), *_missing_job(document, given)]
    if unknown or missing:
        raise InputError(*(unknown or missing))
    found = {key: _value(values, names) for key, names in {**REQUIRED, **OPTIONAL}.items()}
    is_gpt = _value(values, OF_GPT) is not None
    if DENSE_WIDTH in values:
        found["feed_forward"] = values[DENSE_WIDTH]
    found |= {
        "gated": not is_gpt and _is_gated(values),
        "biases": is_gpt,
        "learned_positions": is_gpt,
        "tied": values.get("tie_word_embeddings", is_gpt or _is_gemma(values)),
        "fused_attention": True,
        "latent": _latent(values),
        "moe": _experts(values),
    }
    return {**{key: value for key, value in found.items() if value is not None}, **given}


def left_out(document: Document) -> list[str]:
    """The parts of the model in the file that its sizes here do not have."""
    values = {**document.values, **_of_text(document.values)}
    windows = WINDOWS if values.get("use_sliding_window", True) else ()
    return [key for key in (*LEFT_OUT, *windows) if values.get(key)]


def _of_text(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The keys of the language model, where a file has several models."""
    inner = values.get("text_config")
    return inner if isinstance(inner, Mapping) else values


def _value(values: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((values[name] for name in names if values.get(name) is not None), None)


def _missing_sizes(
    document: Document, values: Mapping[str, Any], given: Mapping[str, Any]
) -> Iterator[Problem]:
    for key, names in REQUIRED.items():
        if key not in given and _value(values, names) is None:
            yield Problem(f"{document.path} {names[0]}", "is required", "add it to the file")
    if _value(values, EXPERTS) and values.get("num_experts_per_tok") is None:
        where = f"{document.path} num_experts_per_tok"
        yield Problem(where, "is required with experts", "add it to the file")
    if values.get("kv_lora_rank"):
        for name in LATENT.values():
            if name not in values:
                where = f"{document.path} {name}"
                yield Problem(where, "is required with kv_lora_rank", "add it to the file")
    act = _value(values, ACTIVATION)
    if act not in (*GATES, *WITHOUT_GATE) and not _is_gemma(values) and not _value(values, OF_GPT):
        problem = "is required" if act is None else f"is not known, got {act!r}"
        hint = f"with a gate: {', '.join(GATES)}; without: {', '.join(WITHOUT_GATE)}"
        yield Problem(f"{document.path} {ACTIVATION[0]}", problem, hint)


def _missing_job(document: Document, given: Mapping[str, Any]) -> Iterator[Problem]:
    for key, what in ASKED.items():
        if key not in given:
            hint = f"give it: `--{key}`, or `{key}` of an iteration"
            yield Problem(str(document.path), f"does not say {what}", hint)


def _is_gated(values: Mapping[str, Any]) -> bool:
    return _is_gemma(values) or _value(values, ACTIVATION) in GATES


def _is_gemma(values: Mapping[str, Any]) -> bool:
    return str(values.get("model_type")).startswith(GEMMA)


def _latent(values: Mapping[str, Any]) -> dict[str, Any] | None:
    if not values.get("kv_lora_rank"):
        return None
    return {key: values.get(name) or 0 for key, name in LATENT.items()}


def _experts(values: Mapping[str, Any]) -> dict[str, Any] | None:
    """Experts by the keys of Mixtral, Qwen, DeepSeek and Llama 4.

    A shared expert that is wider than the others counts as several.
    """
    count = _value(values, EXPERTS)
    if not count:
        return None
    dense, width = values.get("mlp_only_layers"), values.get("moe_intermediate_size")
    shared, of_shared = (
        values.get("n_shared_experts"),
        values.get("shared_expert_intermediate_size"),
    )
    if DENSE_WIDTH in values:
        shared, width = 1, values.get("intermediate_size")
    elif of_shared and width:
        shared = of_shared // width
    found = {
        "every": _value(values, EVERY),
        "experts": count,
        "top_k": values["num_experts_per_tok"],
        "width": width,
        "shared_experts": shared,
        "dense_layers": values.get("first_k_dense_replace")
        or (len(dense) if isinstance(dense, list) else dense),
    }
    return {key: value for key, value in found.items() if value is not None}
