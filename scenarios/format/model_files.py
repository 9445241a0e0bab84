"""Models' own files: `config.json` of HuggingFace, SimAI's of the same keys, and Calculon's.

Keys that say nothing about sizes are left alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from model.errors import InputError, Problem
from scenarios.format.document import Document

# Activation functions that have no gate; all others of these files' models do.
WITHOUT_GATE = ("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "quick_gelu", "relu", "relu2")
# A tanh-GELU is a gate in Gemma's models alone.
GATED = "gemma"
# The names of a size, in any of these files; each is required.
REQUIRED = {
    "layers": ("num_hidden_layers", "num_layers", "n_layer", "num_blocks"),
    "hidden": ("hidden_size", "n_embd", "hidden"),
    "heads": ("num_attention_heads", "n_head", "attn_heads"),
    "sequence": ("max_position_embeddings", "n_positions", "seq_size"),
    "vocabulary": ("vocab_size",),
}
OPTIONAL = {
    "key_value_heads": ("num_key_value_heads",),
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
# Keys of Calculon and of GPT-2, whose models have biases and learned positions.
OF_GPT = ("attn_heads", "n_head")
# Parts of a model that its size here does not have.
LEFT_OUT = ("vision_config", "audio_config", "num_nextn_predict_layers")
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
    missing = [*_missing_sizes(document, values, given), *_missing_job(document, given)]
    if missing:
        raise InputError(*missing)
    found = {key: _value(values, names) for key, names in {**REQUIRED, **OPTIONAL}.items()}
    is_gpt = _value(values, OF_GPT) is not None
    found |= {
        "gated": not is_gpt and _is_gated(values),
        "biases": is_gpt,
        "learned_positions": is_gpt,
        "tied": bool(values.get("tie_word_embeddings", is_gpt)),
        "fused_attention": True,
        "latent": _latent(values),
        "moe": _experts(values),
    }
    return {**{key: value for key, value in found.items() if value is not None}, **given}


def left_out(document: Document) -> list[str]:
    """The parts of the model in the file that its sizes here do not have."""
    return [key for key in LEFT_OUT if document.values.get(key)]


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


def _missing_job(document: Document, given: Mapping[str, Any]) -> Iterator[Problem]:
    for key, what in ASKED.items():
        if key not in given:
            hint = f"give it: `--{key}`, or `{key}` of an iteration"
            yield Problem(str(document.path), f"does not say {what}", hint)


def _is_gated(values: Mapping[str, Any]) -> bool:
    act = _value(values, ("hidden_act", "hidden_activation", "activation_function")) or "silu"
    return act not in WITHOUT_GATE or str(values.get("model_type", "")).startswith(GATED)


def _latent(values: Mapping[str, Any]) -> dict[str, Any] | None:
    if not values.get("kv_lora_rank"):
        return None
    return {key: values.get(name) or 0 for key, name in LATENT.items()}


def _experts(values: Mapping[str, Any]) -> dict[str, Any] | None:
    """Experts by the keys of Mixtral, Qwen and DeepSeek."""
    count = _value(values, EXPERTS)
    if not count:
        return None
    dense = values.get("mlp_only_layers") or ()
    found = {
        "every": _value(values, ("decoder_sparse_step", "moe_layer_freq")) or 1,
        "experts": count,
        "top_k": values["num_experts_per_tok"],
        "width": values.get("moe_intermediate_size"),
        "shared_experts": values.get("n_shared_experts") or 0,
        "dense_layers": values.get("first_k_dense_replace") or len(dense),
    }
    return {key: value for key, value in found.items() if value is not None}
