"""Models' own files as training configurations: HuggingFace, SimAI, Calculon."""

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from commands.check import check
from commands.decide import decide
from commands.traffic import traffic
from commands.train import train
from model.errors import InputError
from model.training.transformer import Transformer
from scenarios.format.model_files import SYNONYMS
from scenarios.format.training import load_configuration, model_remarks

SCENARIO = """
fabric: {domains: 2, domain_size: 4, platform: dgx-h100, bandwidth_scale: 20000, kinds: rail-only}
workloads:
  - {iteration: config.json, gpus: 8, batch: 16, platform: dgx-h100, time_dilation: 40}
  - {inference: config.json, rate: 10, time_dilation: 40}
"""
CLUSTER = """
{gpus: 64, platform: dgx-h100, radix: 64, models: [{configuration: config.json, batch: 64}]}
"""
GIVEN = {"gpus": 256, "batch": 1024, "platform": "dgx-h100"}
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 8192,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rope_theta": 500000.0,
    "vocab_size": 128256,
}
MIXTRAL = {**LLAMA, "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2}
QWEN = {
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "max_position_embeddings": 40960,
    "mlp_only_layers": [],
    "moe_intermediate_size": 1536,
    "num_attention_heads": 64,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 94,
    "num_key_value_heads": 4,
    "vocab_size": 151936,
}
DEEPSEEK = {
    "first_k_dense_replace": 3,
    "hidden_act": "silu",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "max_position_embeddings": 4096,
    "moe_intermediate_size": 2048,
    "moe_layer_freq": 1,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_attention_heads": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
}
# SimAI's `deepseek_v3_config.json` has other names of experts.
SIMAI = {
    **DEEPSEEK,
    "n_routed_experts": None,
    "n_shared_experts": None,
    "num_routed_experts": 256,
    "num_shared_experts": 1,
}
# openPangu's Ultra MoE has other names of latent attention.
PANGU = {
    "attention_kv_lora_dim": DEEPSEEK["kv_lora_rank"],
    "attention_q_lora_dim": DEEPSEEK["q_lora_rank"],
    "attention_qk_dim": DEEPSEEK["qk_nope_head_dim"],
    "attention_qk_rope_dim": DEEPSEEK["qk_rope_head_dim"],
    "attention_v_dim": DEEPSEEK["v_head_dim"],
    **{key: size for key, size in SIMAI.items() if not key.endswith(("_rank", "_head_dim"))},
}
# AICB's `deepseek_default.json`, and the keys that Railbed asks for.
AICB = {
    "num_layers": 61,
    "dense_layer": 3,
    "hidden_size": 7168,
    "hidden_act": "silu",
    "intermediate_size": 18432,
    "max_position_embeddings": 4096,
    "num_attention_heads": 128,
    "vocab_size": 129280,
    "d_kv_c": 512,
    "d_q_c": 1536,
    "d_r": 64,
    "d_q": 128,
    "d_kv": 128,
    "router_expert": 256,
    "duped_expert": 32,
    "shared_experts": 1,
    "moe_router_topk": 8,
    "expert_dim": 2048,
    "num_experts": 288,
}
CALCULON = {
    "hidden": 12288,
    "feedforward": 49152,
    "seq_size": 2048,
    "attn_heads": 96,
    "attn_size": 128,
    "num_blocks": 96,
}


def file_of(folder: Path, values: dict[str, Any]) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(values, indent=2))
    return path


def model_of(folder: Path, values: dict[str, Any]) -> Transformer:
    return load_configuration(file_of(folder, values), GIVEN).transformer


@pytest.mark.parametrize(
    ("values", "shipped"),
    [
        (LLAMA, "llama-3-8b"),
        ({"text_config": LLAMA, "vision_config": {"hidden_size": 8}}, "llama-3-8b"),
        ({"llm_config": LLAMA, "tie_word_embeddings": False}, "llama-3-8b"),
        ({"language_config": LLAMA, "tie_word_embeddings": False}, "llama-3-8b"),
        (MIXTRAL, "mixtral-8x7b"),
        (QWEN, "qwen-3-235b-a22b"),
        (DEEPSEEK, "deepseek-v3"),
        (SIMAI, "deepseek-v3"),
        (PANGU, "deepseek-v3"),
        (AICB, "deepseek-v3"),
        ({**CALCULON, "vocab_size": 51200}, "gpt-3-175b"),
    ],
)
def test_a_models_own_file_is_the_shipped_model(
    tmp_path: Path, values: dict[str, Any], shipped: str
) -> None:
    model, known = model_of(tmp_path, values), load_configuration(Path(shipped)).transformer
    assert model.parameters == known.parameters
    assert model.cache_bytes == known.cache_bytes
    assert model.layer_flops(1) / model.sequence >= known.layer_flops(1) / known.sequence


LLAMA_4 = {
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 5120,
    "intermediate_size": 8192,
    "intermediate_size_mlp": 16384,
    "interleave_moe_layer_step": 2,
    "max_position_embeddings": 8192,
    "num_attention_heads": 40,
    "num_experts_per_tok": 1,
    "num_hidden_layers": 48,
    "num_key_value_heads": 8,
    "num_local_experts": 128,
    "vocab_size": 202048,
}
GEMMA = {
    "head_dim": 256,
    "hidden_size": 3584,
    "intermediate_size": 14336,
    "max_position_embeddings": 8192,
    "model_type": "gemma2",
    "num_attention_heads": 16,
    "num_hidden_layers": 42,
    "num_key_value_heads": 8,
    "sliding_window": 4096,
    "vocab_size": 256000,
}
STARCODER = {
    "activation_function": "gelu",
    "model_type": "gpt_bigcode",
    "multi_query": True,
    "n_embd": 6144,
    "n_head": 48,
    "n_inner": None,
    "n_layer": 40,
    "n_positions": 8192,
    "vocab_size": 49152,
}
COMMAND_R = {
    "hidden_act": "silu",
    "hidden_size": 8192,
    "intermediate_size": 22528,
    "max_position_embeddings": 8192,
    "model_type": "cohere",
    "num_attention_heads": 64,
    "num_hidden_layers": 40,
    "vocab_size": 256000,
}
OPT = {
    "activation_function": "relu",
    "ffn_dim": 3072,
    "hidden_size": 768,
    "max_position_embeddings": 2048,
    "model_type": "opt",
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "vocab_size": 50272,
}
BLOOM = {
    "model_type": "bloom",
    "n_embed": 14336,
    "n_layer": 70,
    "num_attention_heads": 112,
    "seq_length": 2048,
    "vocab_size": 250880,
}
JAIS = {
    "activation_function": "swiglu",
    "model_type": "jais",
    "n_embd": 5120,
    "n_head": 40,
    "n_inner": 13653,
    "n_layer": 40,
    "n_positions": 2048,
    "vocab_size": 84992,
}
MODERN_BERT = {
    "hidden_activation": "gelu",
    "hidden_size": 768,
    "intermediate_size": 1152,
    "max_position_embeddings": 8192,
    "model_type": "modernbert",
    "num_attention_heads": 12,
    "num_hidden_layers": 22,
    "vocab_size": 50368,
}
MEGATRON = {
    "ffn_hidden_size": 14336,
    "hidden_act": "swiglu",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_layers": 32,
    "num_query_groups": 8,
    "padded_vocab_size": 128256,
    "seq_length": 8192,
}
GEMMA_3 = {
    "hidden_size": 2560,
    "intermediate_size": 10240,
    "max_position_embeddings": 8192,
    "model_type": "gemma3_text",
    "num_hidden_layers": 34,
}
MINIMAX = {
    "attn_type_list": [1] * 62,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 3072,
    "intermediate_size": 1536,
    "max_position_embeddings": 196608,
    "model_type": "minimax_m2",
    "num_attention_heads": 48,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 62,
    "num_key_value_heads": 8,
    "num_local_experts": 256,
    "vocab_size": 200064,
}
ERNIE = {
    "hidden_act": "silu",
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "max_position_embeddings": 131072,
    "model_type": "ernie4_5_moe",
    "moe_intermediate_size": 3584,
    "moe_k": 8,
    "moe_layer_interval": 1,
    "moe_layer_start_index": 3,
    "moe_num_experts": 64,
    "num_attention_heads": 64,
    "num_hidden_layers": 54,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "vocab_size": 103424,
}
HUNYUAN = {
    "hidden_act": "silu",
    "hidden_size": 6400,
    "intermediate_size": 18304,
    "max_position_embeddings": 131072,
    "model_type": "hunyuan",
    "moe_topk": 1,
    "num_attention_heads": 80,
    "num_experts": 16,
    "num_hidden_layers": 64,
    "num_key_value_heads": 8,
    "num_shared_expert": 1,
    "tie_word_embeddings": True,
    "vocab_size": 128512,
}
HUNYUAN_LISTS = {
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 3072,
    "max_position_embeddings": 32768,
    "model_type": "hunyuan_v1_moe",
    "moe_intermediate_size": [3072] * 32,
    "moe_topk": [8] * 32,
    "num_attention_heads": 32,
    "num_experts": 64,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "num_shared_expert": [1] * 32,
    "tie_word_embeddings": True,
    "vocab_size": 128167,
}
GPT_NEO = {
    "activation_function": "gelu_new",
    "hidden_size": 2560,
    "intermediate_size": None,
    "max_position_embeddings": 2048,
    "model_type": "gpt_neo",
    "num_heads": 20,
    "num_layers": 32,
    "vocab_size": 50257,
}
GROK = {
    "hidden_act": "gelu",
    "hidden_size": 6144,
    "intermediate_size": 32768,
    "max_position_embeddings": 8192,
    "model_type": "grok-1",
    "num_attention_heads": 48,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 64,
    "num_key_value_heads": 8,
    "vocab_size": 131072,
}
BITNET = {
    "hidden_act": "relu2",
    "hidden_size": 2560,
    "intermediate_size": 6912,
    "max_position_embeddings": 4096,
    "model_type": "bitnet",
    "num_attention_heads": 20,
    "num_hidden_layers": 30,
    "num_key_value_heads": 5,
    "tie_word_embeddings": True,
    "vocab_size": 128256,
}
APERTUS = {
    "hidden_act": "xielu",
    "hidden_size": 4096,
    "intermediate_size": 21504,
    "max_position_embeddings": 65536,
    "model_type": "apertus",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "vocab_size": 131072,
}
# The text of PaliGemma 2, whose heads have the size of Gemma 2's class.
PALIGEMMA = {
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "max_position_embeddings": 8192,
    "model_type": "gemma2",
    "num_attention_heads": 8,
    "num_hidden_layers": 26,
    "num_key_value_heads": 4,
    "vocab_size": 257216,
}
# The text of LLaVA-NeXT, of Mistral 7B, with the keys that Railbed asks for.
LLAVA = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 32768,
    "model_type": "mistral",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "vocab_size": 32064,
}
RELU_LLAMA = {**LLAVA, "hidden_act": "relu", "intermediate_size": 11008, "model_type": "llama"}
# TeleChat 7B has GPT-2's name of heads, but a gate; GPT has neither width nor activation function.
TELECHAT = {
    "ffn_hidden_size": 12288,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "model_type": "telechat",
    "n_head": 32,
    "n_layer": 30,
    "seq_length": 8192,
    "tie_word_embeddings": True,
    "vocab_size": 160256,
}
GPT = {
    "model_type": "openai-gpt",
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 512,
    "vocab_size": 40478,
}
# Step 1, of Step-Audio, calls heads of keys and values groups.
STEP = {
    "hidden_act": "silu",
    "hidden_size": 12288,
    "intermediate_size": 31232,
    "max_position_embeddings": 32768,
    "model_type": "step1",
    "num_attention_groups": 8,
    "num_attention_heads": 96,
    "num_hidden_layers": 88,
    "tie_word_embeddings": False,
    "vocab_size": 74752,
}
# Of DeepSeek-V3, as transformers says it since version 5.
LAYERS = ["dense"] * 3 + ["sparse"] * 58
# The same, as Megatron says it.
FLAGS = [0] * 3 + [1] * 58
# K-EXAONE 236B.
EXAONE = {
    "first_last_k_dense_replace": 1,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 6144,
    "intermediate_size": 18432,
    "is_moe_layer": [False] + [True] * 47,
    "max_position_embeddings": 262144,
    "model_type": "exaone_moe",
    "moe_intermediate_size": 2048,
    "num_attention_heads": 64,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "num_key_value_heads": 8,
    "num_shared_experts": 1,
    "tie_word_embeddings": False,
    "vocab_size": 153600,
}
QWEN_2 = {
    "decoder_sparse_step": 1,
    "hidden_act": "silu",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "max_position_embeddings": 8192,
    "moe_intermediate_size": 2560,
    "num_attention_heads": 28,
    "num_experts": 64,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "shared_expert_intermediate_size": 20480,
    "vocab_size": 151936,
}


@pytest.mark.parametrize(
    ("values", "billions"),
    [
        ({"text_config": LLAMA_4}, (400.7, 17.2)),
        (GEMMA, (9.24, 9.24)),
        (QWEN_2, (57.4, 14.2)),
        (STARCODER, (15.5, 15.5)),
        (COMMAND_R, (35.0, 35.0)),
        (OPT, (0.1252, 0.1252)),
        (BLOOM, (176.2, 176.2)),
        (JAIS, (13.0, 13.0)),
        (MODERN_BERT, (0.149, 0.149)),
        (MEGATRON, (8.03, 8.03)),
        ({**MEGATRON, "untie_embeddings_and_output_weights": False}, (7.5, 7.5)),
        ({**MEGATRON, "num_query_groups": 1, "group_query_attention": False}, (8.84, 8.84)),
        (MINIMAX, (228.7, 11.0)),
        (ERNIE, (300, 47.7)),
        (HUNYUAN, (389, 52)),
        (HUNYUAN_LISTS, (80.4, 12.75)),
        (GPT_NEO, (2.651, 2.651)),
        (GROK, (314, 84)),
        (DEEPSEEK | {"first_k_dense_replace": None, "mlp_layer_types": LAYERS}, (671, 37.6)),
        (DEEPSEEK | {"first_k_dense_replace": None, "moe_layer_freq": FLAGS}, (671, 37.6)),
        (EXAONE | {"is_moe_layer": [True] * 48}, (241, 23.7)),
        (EXAONE, (236, 23.6)),
        ({"text_config": GEMMA_3}, (3.88, 3.88)),
        (BITNET, (2.41, 2.41)),
        (APERTUS, (8.05, 8.05)),
        (RELU_LLAMA, (6.74, 6.74)),
        ({"model_type": "paligemma", "text_config": PALIGEMMA}, (2.617, 2.617)),
        ({"model_type": "llava_next", "text_config": LLAVA}, (7.242, 7.242)),
        (TELECHAT, (7.2, 7.2)),
        (GPT, (0.1165, 0.1165)),
        (STEP, (132, 132)),
    ],
)
def test_sizes_that_families_say_by_keys_of_their_own(
    tmp_path: Path, values: dict[str, Any], billions: tuple[float, float]
) -> None:
    """Model cards: Llama 4 Maverick, Gemma 2, Qwen 2 57B, StarCoder, Command R, OPT, BLOOM ...

    Megatron's `num_query_groups` is 1, and means nothing, without `group_query_attention`.
    """
    model = model_of(tmp_path, values)
    found = model.parameters / 1e9, model.active_parameters / 1e9
    assert found == pytest.approx(billions, rel=0.01)


# Models of 2025 and 2026: what their files say of sizes, and the parameters that their cards give;
# none where a part is not modeled.
PUBLISHED = json.loads(Path(__file__).with_name("published_models.json").read_text())


@pytest.mark.parametrize("name", PUBLISHED)
def test_models_of_today_have_their_published_parameters_or_are_refused(
    tmp_path: Path, name: str
) -> None:
    billions, path = PUBLISHED[name]["billions"], file_of(tmp_path, PUBLISHED[name]["config"])
    if billions is not None:
        model = load_configuration(path, {**GIVEN, "sequence": 8192}).transformer
        assert model.parameters == pytest.approx(1e9 * billions, rel=0.011)
        return
    with pytest.raises(InputError, match="not modeled"):
        load_configuration(path, GIVEN)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"mamba_d_state": 16}, "mamba_d_state: names a part of a model that is not modeled"),
        ({"mamba_expand": 2}, "mamba_expand: names a part of a model that is not modeled"),
        ({"hidden_act": "xielu"}, "hidden_act: is not known, got 'xielu'"),
        ({"hidden_act": None}, "hidden_act: is required"),
        ({"kv_lora_rank": 512}, "v_head_dim: is required with kv_lora_rank"),
        (
            {"num_key_value_heads": 3},
            ": must be a multiple of num_key_value_heads, 3",
        ),
        ({"num_attention_heads": 24}, "hidden_size: must be a multiple of num_attention_heads, 24"),
        ({"num_hidden_layers": -4}, ":10 num_hidden_layers: must be at least 1, got -4"),
        ({"hidden_size": "4096"}, ":6 hidden_size: must be a whole number, got '4096'"),
        ({"n_experts": 4, "num_experts_per_tok": 1, "mlp_only_layers": {}}, ":16 mlp_only_layers"),
        ({"n_experts": 4, "moe_topk": 5}, ":15 moe_topk: must be at most n_experts, 4"),
        ({"n_experts": 4, "moe_topk": [2]}, ":15 moe_topk: must be a whole number, got [2]"),
        ({"num_experts_per_tok": 2}, "num_experts: is required with num_experts_per_tok"),
        ({"moe_ffn_hidden_size": 8}, "num_experts: is required with moe_ffn_hidden_size"),
        ({"first_k_dense_replace": 3}, "num_experts: is required with first_k_dense_replace"),
        (
            {"n_experts": 4, "moe_topk": 1, "shared_intermediate_size": 2000},
            "shared_intermediate_size: must be a multiple of an expert's width, 14336, got 2000",
        ),
        (
            {"n_experts": 4, "moe_topk": 1, "shared_intermediate_size": "2000"},
            "shared_intermediate_size: must be a whole number, got '2000'",
        ),
        ({"n_experts": {}, "moe_topk": 1}, "n_experts: must be a whole number, got {}"),
        (
            {"n_experts": 4, "moe_topk": 1, "is_moe_layer": [False, True]},
            "is_moe_layer: must be a whole number, got [False, True]",
        ),
        ({"n_experts": 4, "moe_topk": [1, 1]}, "moe_topk: must be a whole number, got [1, 1]"),
        ({"laurel_rank": 64}, "laurel_rank: names a part of a model that is not modeled"),
        ({"intermediate_size": None}, "intermediate_size: is required"),
        ({"max_position_embeddings": None}, "is required (give the tokens of a sequence"),
        ({"layer_types": ["full_attention", "conv"]}, "layers that are not modeled: conv"),
        ({"parallel_attn_mlp_res": True}, "parallel_attn_mlp_res: names a part of a model"),
        ({"state_size": 16}, "state_size: names a part of a model"),
        ({"linear_attn_config": {"kda_layers": [1]}}, "linear_attn_config: names a part"),
        ({"residual_moe": True}, "residual_moe: names a part of a model"),
        ({"compress_ratios": [0, 4]}, "compress_ratios: names a part of a model"),
        ({"attn_type_list": [0, 1]}, "attn_type_list: has layers that are not modeled: 0"),
        ({"model_type": "jetmoe"}, "model_type: names a model that is not modeled, jetmoe"),
        ({"model_type": "molmo"}, "model_type: names a model that is not modeled, molmo"),
        ({"q_lora_rank": 8, "kv_lora_rank": None}, "kv_lora_rank: is required with q_lora_rank"),
        ({"qk_nope_head_dim": 8}, "kv_lora_rank: is required with qk_nope_head_dim"),
        ({"v_head_dim": 64}, "v_head_dim: names a part of a model that is not modeled"),
        ({"attn_mode": "chunk"}, "attn_mode: names a part of a model"),
        ({"layer_group_size": 5}, "layer_group_size: names a part of a model"),
        ({"global_head_dim": 512}, "global_head_dim: names a part of a model"),
        ({"total_ut_steps": 4}, "total_ut_steps: names a part of a model"),
        ({"num_key_value_heads_per_layer": [4, 2]}, "heads_per_layer: names a part of a model"),
        ({"thinker_config": {"text_config": LLAMA}}, "thinker_config: names a part of a model"),
        ({"llm_config": {"ssm_cfg": {"layer": "Mamba2"}}}, "llm_config.ssm_cfg: names a part"),
        ({"word_embed_proj_dim": 512}, "must be hidden_size, 4096, as no other is modeled"),
        ({"max_position_embeddings": 10485760}, "got 10485760 (give the tokens of a sequence"),
    ],
)
def test_what_a_model_cannot_be_is_refused(
    tmp_path: Path, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InputError) as error:
        model_of(tmp_path, {**LLAMA, **changes})
    assert any(problem in str(one) for one in error.value.problems)


@pytest.mark.parametrize(
    ("kind", "matrices"), [("llama", 3), ("gemma", 3), ("vaultgemma", 3), ("nemotron", 2)]
)
@pytest.mark.parametrize("act", ["silu", "gelu", "relu2", "newest", None])
def test_a_known_class_has_a_gate_whatever_its_activation_function(
    tmp_path: Path, kind: str, matrices: int, act: str | None
) -> None:
    values = {**LLAMA, "model_type": kind, "head_dim": 128, "hidden_act": act}
    wide = {**values, "intermediate_size": 14337}
    more = model_of(tmp_path, wide).parameters - model_of(tmp_path, values).parameters
    assert more == 32 * 4096 * matrices


def test_a_gelu_has_no_gate(tmp_path: Path) -> None:
    plain, gated = (model_of(tmp_path, {**LLAMA, "hidden_act": act}) for act in ("gelu", "silu"))
    assert gated.parameters - plain.parameters == 32 * 4096 * 14336


def test_what_a_file_lacks_is_asked_for_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        load_configuration(file_of(tmp_path, CALCULON), {"gpus": 64})
    problems = [str(problem).removeprefix(f"{tmp_path}/") for problem in error.value.problems]
    assert problems == [
        "config.json vocab_size: is required (add it to the file)",
        "config.json: does not say the sequences of an iteration (give it: `--batch`, or `batch` "
        "of an iteration)",
        "config.json: does not say the platform, such as dgx-h100 (give it: `--platform`, or "
        "`platform` of an iteration)",
    ]


@pytest.mark.parametrize(
    ("values", "key", "experts"),
    [
        (MIXTRAL, "num_experts_per_tok", "num_local_experts"),
        (DEEPSEEK, "moe_intermediate_size", "n_routed_experts"),
        (QWEN_2, "moe_intermediate_size", "num_experts"),
        (ERNIE, "moe_intermediate_size", "moe_num_experts"),
    ],
)
def test_experts_need_their_width_and_how_many_a_token_visits(
    tmp_path: Path, values: dict[str, Any], key: str, experts: str
) -> None:
    with pytest.raises(InputError, match=f"{key}: is required with {experts} "):
        model_of(tmp_path, {name: value for name, value in values.items() if name != key})


def test_an_unknown_class_with_names_of_gpt_2_is_no_gpt_2(tmp_path: Path) -> None:
    """CTRL names its width otherwise, and TeleChat's activation function may be a gate."""
    ctrl = {**GPT, "model_type": "ctrl", "dff": 8192}
    plain = {key: value for key, value in TELECHAT.items() if key != "hidden_act"}
    for values, key in ((ctrl, "intermediate_size"), (ctrl, "hidden_act"), (plain, "hidden_act")):
        with pytest.raises(InputError, match=f"{key}: is required"):
            model_of(tmp_path, values)


def test_what_is_left_out_of_a_model_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = file_of(tmp_path, {**LLAMA, "num_nextn_predict_layers": 1, "sliding_window": 4096})
    train(path, gpus=64, batch=128, platform="dgx-h100")
    printed = capsys.readouterr().out
    mtp = (
        "num_nextn_predict_layers of config.json is not modeled: multi-token prediction is left out"
    )
    assert mtp in printed
    assert "sliding_window of config.json is not modeled: attention reads all tokens" in printed


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"model_type": "llama"}, []),
        ({}, ["untied embeddings are assumed"]),
        ({"model_type": "newest"}, ["tied embeddings are assumed, as config.json has no tie_"]),
        ({"model_type": "newest", "tie_word_embeddings": False}, []),
        ({"model_type": "gemma3", "vocab_size": 9}, ["defaults of gemma3: head_dim 256"]),
        (
            {"model_type": "llama", "d_state": 8, "cache_dim": 0},
            ["are unknown and unused: d_state"],
        ),
        ({"model_type": "llama", "kv_share": 1, "moe_bias": True}, ["unused: kv_share"]),
        (
            {"model_type": "llama", "seq_length": 4096},
            ["max_position_embeddings of config.json is unused, and differs from seq_length"],
        ),
        ({"model_type": "llama", "seq_length": 8192}, []),
        ({"model_type": "llama", "use_cla": False, "word_embed_proj_dim": 4096}, []),
        ({"model_type": "llama", "use_cla": True}, ["each layer has keys and values of its own"]),
        ({"model_type": "llama", "img_processor": {"name": "clip"}}, ["images are left out"]),
        ({"model_type": "llama", "mm_vision_tower": "openai/clip"}, ["images are left out"]),
        ({"model_type": "llama", "audio_processor": {"name": "cascades"}}, ["audio is left out"]),
        (
            {"model_type": "afmoe", "global_attn_every_n_layers": 4},
            ["the gate of attention's output of afmoe is not modeled"],
        ),
        ({"model_type": "llama", "num_mtp_layers": 1}, ["multi-token prediction is left out"]),
        ({"model_type": "qwen3", "tie_word_embeddings": False}, ["of qwen3: head_dim 128"]),
        ({"model_type": "llama", "first_k_dense_replace": 1, "mlp_layer_types": LAYERS[2:]}, []),
        (
            {"model_type": "llama", "padded_vocab_size": 128512, "activation": "gelu"},
            ["padded_vocab_size of config.json is unused", "activation of config.json is unused"],
        ),
        (
            {"model_type": "llama", "quantization_config": {"quant_method": "fp8"}},
            [
                "quantization_config (fp8) of config.json is not modeled: "
                "the model is computed in bf16"
            ],
        ),
    ],
)
def test_what_is_assumed_or_not_read_is_told(
    tmp_path: Path, changes: dict[str, Any], told: list[str]
) -> None:
    found = model_remarks(file_of(tmp_path, {**LLAMA, **changes}))
    assert [what in one for what, one in zip(told, found, strict=True)] == [True] * len(told)


@pytest.mark.parametrize("key", ["seq_length", "seq_size"])
def test_the_tokens_that_are_trained_come_before_the_most_positions(
    tmp_path: Path, key: str
) -> None:
    assert model_of(tmp_path, {**LLAMA, key: 4096}).sequence == 4096
    with pytest.raises(InputError, match=rf"config.json:\d+ {key}: must be at least 1"):
        model_of(tmp_path, {**LLAMA, key: 0})


PAIRS = [pair for names in SYNONYMS for pair in combinations(names, 2)]


@pytest.mark.parametrize(("used", "unused"), PAIRS)
def test_of_two_names_that_mean_the_same_the_unused_one_is_told(
    tmp_path: Path, used: str, unused: str
) -> None:
    told = f"{unused} of config.json is unused, and differs from {used}"
    for value, expected in ((4, [told]), (2, []), (None, [])):
        found = model_remarks(file_of(tmp_path, {used: 2, unused: value}))
        assert [one for one in found if "differs" in one] == expected


@pytest.mark.parametrize(
    "values", [MIXTRAL, QWEN, DEEPSEEK, SIMAI, LLAMA_4, ERNIE, HUNYUAN_LISTS, QWEN_2]
)
def test_widths_and_numbers_of_experts_are_no_other_names_of_the_same(
    tmp_path: Path, values: dict[str, Any]
) -> None:
    assert "differs" not in str(model_remarks(file_of(tmp_path, values)))


def test_text_that_is_not_json_is_told_as_json(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"a":')
    with pytest.raises(InputError, match=r"config.json:1: is not JSON"):
        load_configuration(tmp_path / "config.json", GIVEN)


def test_every_command_tells_what_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = file_of(tmp_path, {**LLAMA, "model_type": "mistral", "sliding_window": 4096})
    cluster, scenario = tmp_path / "cluster.yaml", tmp_path / "scenario.yaml"
    cluster.write_text(CLUSTER)
    scenario.write_text(SCENARIO)
    traffic(path, gpus=64, batch=64, platform="dgx-h100")
    decide(cluster)
    check(scenario)
    assert capsys.readouterr().out.count("sliding_window of config.json is not modeled") == 4


def test_a_model_that_is_served_has_any_sequence(tmp_path: Path) -> None:
    """Of a million tokens and more, such as Llama 4's; an iteration is told to say its own."""
    file_of(tmp_path, {**LLAMA, "max_position_embeddings": 10485760})
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    with pytest.raises(InputError) as error:
        check(tmp_path / "scenario.yaml")
    assert len(error.value.problems) == 1
    (tmp_path / "scenario.yaml").write_text(SCENARIO.replace("batch", "sequence: 8192, batch"))
    check(tmp_path / "scenario.yaml")


def test_a_decision_takes_a_sequence_and_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file_of(tmp_path, LLAMA)
    cluster = tmp_path / "cluster.yaml"
    for more, tokens in (("", 8192), (", sequence: 4096", 4096)):
        cluster.write_text(CLUSTER.replace("batch: 64", f"batch: 64{more}"))
        decide(cluster)
        told = f"An iteration has 64 sequences of {tokens} tokens."
        assert told in capsys.readouterr().out


def test_a_decision_asks_for_the_batch_in_its_own_file(tmp_path: Path) -> None:
    file_of(tmp_path, LLAMA)
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(CLUSTER.replace(", batch: 64", ""))
    with pytest.raises(InputError) as error:
        decide(cluster)
    (problem,) = map(str, error.value.problems)
    assert problem.endswith(
        "cluster.yaml:2 models.0.batch: is required, as a model's own file does not say it "
        "(add `batch`, the sequences of an iteration)"
    )


def test_the_commands_take_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = file_of(tmp_path, LLAMA)
    train(path, gpus=64, batch=128, platform="dgx-h100", sequence=4096, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert (found["configuration"], found["sequence"]) == ("config", 4096)
    assert found["fits"]
    traffic(path, gpus=64, batch=128, platform="dgx-h100")
    assert "config" in capsys.readouterr().out
