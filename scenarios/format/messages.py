"""Plain wording of validation errors: the value required, and the value found."""

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel

from scenarios.format.issues import TAGGED, did_you_mean, meant


def wording(details: Any) -> str:
    """Describe a pydantic error: the value required, and the value found."""
    found, context = details["input"], details.get("ctx", {})
    match details["type"]:
        case "missing":
            return "is required, but missing"
        case "greater_than_equal":
            return f"must be at least {context['ge']:.12g}, got {found}"
        case "less_than_equal":
            return f"must be at most {context['le']:.12g}, got {found}"
        case "greater_than":
            return f"must be more than {context['gt']:g}, got {found}"
        case "enum":
            return f"must be {context['expected']}, got {found!r}{_similar(found, context)}"
        case "int_type" | "int_from_float":
            return f"must be a whole number, got {found!r}"
        case "float_type" | "float_parsing":
            return f"must be a number, got {found!r}"
        case "finite_number":
            return f"must be a finite number, got {found}"
        case "literal_error":
            return f"must be a number or {context['expected']}, got {found!r}"
        case "bool_type":
            return f"must be true or false, got {found!r}"
        case "string_type":
            return f"must be text, got {found!r}"
        case "string_too_long":
            return f"must have at most {context['max_length']} characters, got {found!r}"
        case "string_unicode":
            return "must be text, but has a character that Unicode reserves (a lone surrogate)"
        case "string_pattern_mismatch":
            return f"must be lower-case letters, digits and hyphens (at most 40), got {found!r}"
        case "too_short":
            return "must have at least one entry"
        case "too_long":
            return f"must have at most {context['max_length']} entries"
        case "model_type" | "tuple_type":
            return f"must have keys of its own or entries, got {found!r}"
        case "union_tag_invalid":
            tag = str(context["tag"]).removeprefix(TAGGED)
            return f"must have one of {_untagged(context['expected_tags'])}, got {tag}"
        case "value_error":
            return str(context["error"])
        case _:
            return f"{details['msg']}, got {found!r}"


def _untagged(expected: str) -> str:
    """Return the keys of which an entry must have one, from a union's quoted tags."""
    return ", ".join(tag.strip(" '").removeprefix(TAGGED) for tag in expected.split(","))


def _similar(found: object, context: dict[str, Any]) -> str:
    known = context["expected"].replace(" or ", ", ").replace("'", "").split(", ")
    return did_you_mean(str(found), known).rstrip(";")


def nearest_key(place: tuple[str | int, ...], model: type[BaseModel]) -> str:
    """Hint for an unknown key: the nearest known key of its section, or all known keys."""
    section = _section(place, model)
    known = [field.alias or key for key, field in section.model_fields.items()]
    return meant(str(place[-1]), known, f"known are {', '.join(known)}")


def _section(place: tuple[str | int, ...], model: type[BaseModel]) -> type[BaseModel]:
    """The model of the mapping that a place's last key is in."""
    models = [model]
    for part in place[:-1]:
        fields = {field.alias or key: field for key, field in models[0].model_fields.items()}
        if part in fields:
            models = list(_models(fields[str(part)].annotation)) or models
        elif isinstance(part, str) and part.startswith(TAGGED):
            key = part.removeprefix(TAGGED)
            models = [found for found in models if key in found.model_fields] or models
    return models[0]


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models within a type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)
