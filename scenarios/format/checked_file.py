"""Values of a YAML file checked against a model: all mistakes at once, each in plain words."""

from collections.abc import Iterator
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from model.errors import InputError, Problem
from scenarios.format.document import Document, plain
from scenarios.format.issues import TAGGED, Place, did_you_mean, meant, written

Model = TypeVar("Model", bound=BaseModel)

# Hint for `generator: exec`: programs follow no schedule, so a command of its own runs them.
PROGRAMS = "programs of your own: `./railbed exec SCENARIO -- COMMAND`"

# What each type of error of pydantic says, with the value given and pydantic's own context.
SENTENCES = {
    "missing": "is required",
    "greater_than_equal": "must be at least {ge:.12g}, got {given}",
    "less_than_equal": "must be at most {le:.12g}, got {given}",
    "greater_than": "must be more than {gt:g}, got {given}",
    "int_type": "must be a whole number, got {given}",
    "int_from_float": "must be a whole number, got {given}",
    "float_type": "must be a number, got {given}",
    "float_parsing": "must be a number, got {given}",
    "finite_number": "must be a finite number, got {given}",
    "literal_error": "must be {expected}, got {given}",
    "number_or_literal": "must be a number or {expected}, got {given}",
    "whole_or_literal": "must be a whole number or {expected}, got {given}",
    "bool_type": "must be true or false, got {given}",
    "bool_parsing": "must be true or false, got {given}",
    "string_type": "must be text, got {given}",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters, got {given}",
    "string_unicode": "must be text, but has a character that Unicode reserves (a lone surrogate)",
    "string_pattern_mismatch": "must be lower-case letters, digits and hyphens (at most 40), got "
    "{given}",
    "invalid_key": "a key must be text, got {given}",
    "too_short": "must have at least one entry",
    "too_long": "must have at most {max_length} entries",
    "tuple_type": "must be a list, got {given}",
    "value_error": "{error}",
}
# Keys of clusters and of fabrics for the same NICs.
INVERSE = {"gpus_per_nic": "nics_per_domain", "nics_per_domain": "gpus_per_nic"}
NOT_WHOLE = ("int_type", "int_parsing", "int_from_float")


class Strict(BaseModel):
    """The base model of YAML files: unknown keys are errors, values do not change once read."""

    # A model is built when a file is first checked against it, and its parts only within it.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


def checked(document: Document, model: type[Model]) -> Model:
    """Check a document against a model; files that it names are in its folder.

    Raises `InputError` with the problems of wrong overrides and those of all values.
    """
    try:
        return model.model_validate(plain(document.values), context=document.path.parent.absolute())
    except ValidationError as error:
        wrong = (_problem(document, details, model) for details in _one_a_place(error))
        raise InputError(*document.problems, *wrong) from error


def _one_a_place(error: ValidationError) -> list[Any]:
    """Return one error per place: the last, where a value fits no type of a union.

    Drops `too_short` of a list that only has wrong entries, which have errors of their own, and
    `literal_error` of a number out of bounds, which has another error.
    """
    last: dict[Place, Any] = {}
    for details in error.errors():
        place, kind, given = _place(details), details["type"], details["input"]
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        if kind == "literal_error" and place in last:
            if last[place]["type"] in NOT_WHOLE:
                last[place] = {**details, "type": "whole_or_literal"}
            elif not is_number:
                last[place] = {**details, "type": "number_or_literal"}
        elif not (kind == "too_short" and given):
            last[place] = details
    return list(last.values())


def _place(details: Any) -> Place:
    """Keys of an error's location, without the union branches that pydantic adds.

    A validator's `Refused` may name one more.
    """
    if details["type"] == "invalid_key":
        return (*details["loc"][:-1], details["input"])
    key = getattr(details.get("ctx", {}).get("error"), "key", "")
    *before, last = (*details["loc"], key) if key else details["loc"] or ("",)
    keys = tuple(part for part in before if isinstance(part, int) or part.isidentifier())
    is_key = details["type"] == "extra_forbidden" or isinstance(last, int) or last.isidentifier()
    return (*keys, last) if is_key else keys


def _problem(document: Document, details: Any, model: type[BaseModel]) -> Problem:
    """The problem of an error of pydantic: the value required, the value given, and a hint."""
    place, given, context = _place(details), written(details["input"]), details.get("ctx", {})
    # A validator's `Refused` has a hint.
    hint = str(getattr(context.get("error"), "hint", ""))
    match details["type"]:
        case "extra_forbidden":
            key, known = str(place[-1]), list(_fields(details["loc"][:-1], model))
            what, hint = f"unknown key {key!r}", meant(key, known, f"known: {', '.join(known)}")
            if (inverse := INVERSE.get(key)) in known:
                hint = f"use {inverse}: the GPUs of a domain over {key}"
        case "model_type":
            fields = _fields(details["loc"], model)
            key = next((key for key in fields if fields[key].is_required()), next(iter(fields)))
            what, hint = f"must be a mapping, got {given}", f"such as `{{{key}: ...}}`"
        case "enum":
            known = context["expected"].replace(" or ", ", ").replace("'", "").split(", ")
            similar = did_you_mean(str(details["input"]), known).rstrip(";")
            what = f"must be {context['expected']}, got {given}{similar}"
            hint = PROGRAMS if place[-1:] == ("generator",) and details["input"] == "exec" else ""
        case "union_tag_invalid":
            tags = (tag.strip(" '") for tag in context["expected_tags"].split(","))
            keys = ", ".join(tag.removeprefix(TAGGED) for tag in tags)
            what = f"must have one of {keys}, got {str(context['tag']).removeprefix(TAGGED)}"
        case other:
            sentence = SENTENCES.get(other, "{msg}, got {given}")
            what = sentence.format(given=given, msg=details["msg"], **context)
    return document.problem(place, what, hint)


def _fields(place: tuple[str | int, ...], model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of the mapping in a place, by their keys in a file."""
    models = [model]
    for part in place:
        fields = _keys_of(models[0])
        if part in fields:
            models = list(_models(fields[str(part)].annotation)) or models
        elif isinstance(part, str) and part.startswith(TAGGED):
            key = part.removeprefix(TAGGED)
            models = [model for model in models if key in model.model_fields] or models
    return _keys_of(models[0])


def _keys_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or key: field for key, field in model.model_fields.items()}


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)
