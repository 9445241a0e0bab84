"""Models' own files: `config.json` of HuggingFace, SimAI's and AICB's, Megatron's, and Calculon's.

A key that changes sizes is used, refused, or told as a remark; others are left alone.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from ruamel.yaml.comments import CommentedMap

from model.errors import InputError, Problem
from scenarios.format.document import Document
from scenarios.format.issues import Place

TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
NAMES = {key: names.split() for key, names in TABLE["names"].items()}
CLASSES: Mapping[str, Mapping[str, Any]] = TABLE["classes"]
KEYS = {key: re.compile("|".join(patterns)) for key, patterns in TABLE["keys"].items()}
ACTS: Mapping[str, Sequence[str]] = TABLE["activations"]
ACTIVATION = ("hidden_act", "hidden_activation", "activation_function", "activation")
# Models whose blocks have a gate, beside those of the known classes.
GATED = ("gemma", "grok", "modernbert", "vaultgemma")
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
# Keys of Calculon and of GPT-2, whose models have biases.
OF_GPT = ("attn_heads", "n_head")
# Models whose keys have other meanings: experts of attention, half of the feed-forward's width.
UNKNOWN_KINDS = ("jetmoe", "molmo", "qwen")
# The width of embeddings, where they have one of their own.
EMBEDDED = "word_embed_proj_dim"
# The kinds of layers that are attention.
ATTENTION = {
    "layer_types": ("attention", "full_attention", "sliding_attention", "chunked_attention"),
    "attn_type_list": (1,),
}
READ = {*chain(*NAMES.values()), *TABLE["left_out"], *TABLE["windows"], EMBEDDED}
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
        self.of_class = CLASSES.get(self.kind, {})
        self.values: dict[str, Any] = {**self.of_class.get("defaults", {}), **self.own}
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
        return self.of_class.get("tied", True if not self.kind and self.is_gpt else None)

    @property
    def tied(self) -> Any:
        """As said; else as in the base class of transformers, if the file is of one of these."""
        return bool(self.kind) if self.said_tied is None else self.said_tied

    @property
    def gate_of_class(self) -> bool | None:
        """Whether blocks have a gate in the model's class; `None` if the class is not known."""
        if self.kind.startswith(GATED):
            return True
        return self.of_class.get("gated")

    def remarks(self) -> Iterator[str]:
        """Yield a sentence for each part that is not modeled, or assumed."""
        name, everything = self.document.path.name, {**self.document.values, **self.values}
        has_windows = self.values.get("use_sliding_window", True)
        parts = TABLE["left_out"] | (TABLE["windows"] if has_windows else {})
        for key, instead in parts.items():
            if value := everything.get(key):
                method = value.get("quant_method") if isinstance(value, Mapping) else None
                how = f" ({method})" if method else ""
                yield f"{key}{how} of {name} is not modeled: {instead}"
        if part := self.of_class.get("left_out"):
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
            if value and KEYS["refused"].fullmatch(str(key)):
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
        act, gates, others = self.activation, ACTS["gates"], ACTS["without_gate"]
        if act not in (*gates, *others) and self.gate_of_class is None and not self.is_gpt:
            problem = "is required" if act is None else f"is not known, got {act!r}"
            hint = f"with a gate: {', '.join(gates)}; without: {', '.join(others)}"
            yield Problem(f"{path} {ACTIVATION[0]}", problem, hint)
        for key, what in ASKED.items():
            if key not in given:
                hint = f"give it: `--{key}`, or `{key}` of an iteration"
                yield Problem(str(path), f"does not say {what}", hint)

    def _required(self, given: Mapping[str, Any]) -> dict[str, str]:
        """The sizes that this model needs, each with its reason."""
        required = {key: "" for key in REQUIRED if key not in given}
        is_gpt = self.is_gpt and "n_embd" in self.values
        if is_gpt or "n_inner" in self.values or self.of_class.get("four_times"):
            required.pop("feed_forward", None)
        if self._has("moe.experts"):
            required |= dict.fromkeys(("moe.top_k", "moe.width"), f" with {self.keys['moe']}")
        if not any(name in self.values for name in NAMES["moe.experts"]):
            # A key that only a model with experts has, in a file that does not say how many.
            of_experts = (
                k for k, v in self.values.items() if v and KEYS["of_experts"].search(str(k))
            )
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
        gates = ACTS["gates_of_gpt" if self.is_gpt else "gates"]
        by_class, is_plain_gpt = self.gate_of_class, not self.kind and self.is_gpt
        found |= {
            "gated": self.activation in gates if by_class is None else by_class,
            "biases": self.is_gpt,
            "learned_positions": self.of_class.get("learned_positions", is_plain_gpt),
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
    is_known = key in READ or KEYS["no_sizes"].fullmatch(str(key))
    is_size = is_number or (isinstance(value, list) and value)
    return bool(is_size and KEYS["sizes"].search(str(key)) and not is_known)


def _asked(key: str) -> str:
    return str(TABLE["asked_as"].get(key, NAMES[key][0]))
