"""Keywords that look at the instance itself and not into it: type, values, numbers, strings, sizes, names.

A keyword is a row of :data:`KEYWORDS`: its name and the function that compiles it, in the order of checking.
Behind each stands its check, to which what it compares with is bound. A check may rely on the type of the
instance that its rule is for. Source: JSON Schema Validation 2020-12, section 6. Draft 7 has the same words
but for ``dependentRequired``.
"""

from __future__ import annotations

from functools import partial
from types import MappingProxyType
from typing import Callable, Iterable, Mapping, Union

from .equality import Decimals, decimals_of, equality_key, is_multiple
from .patterns import Pattern
from .sites import ANY, ARRAY, NUMBER, OBJECT, STRING, Compiler, Rule, Site
from .verdicts import Failure, Json, Run, counted, quoted

__all__ = ["KEYWORDS", "type_name"]

Number = Union[int, float]

_NAMES: Mapping[type, str] = MappingProxyType(
    {
        dict: "an object",
        list: "an array",
        str: "a string",
        int: "an integer",
        float: "a number",
        bool: "a boolean",
        type(None): "null",
    }
)
_ACCEPTED: Mapping[str, tuple[type, ...]] = MappingProxyType(
    {
        "object": (dict,),
        "array": (list,),
        "string": (str,),
        "integer": (int,),
        "number": (int, float),
        "boolean": (bool,),
        "null": (type(None),),
    }
)
_NAMED = MappingProxyType({name: _NAMES[accepted[-1]] for name, accepted in _ACCEPTED.items()})
_MOST_SHOWN = 5


def type_name(value: Json) -> str:
    """Return the type of *value* as a sentence names it: ``an object``, ``null``."""
    return _NAMES.get(type(value), "no JSON value")


def _shown(values: Iterable[str]) -> str:
    return ", ".join(values)


# --- any type: 6.1 ------------------------------------------------------------------------------------------


def _type(site: Site) -> Rule | None:
    names = (site.value,) if isinstance(site.value, str) else site.names()
    if not names or not _ACCEPTED.keys() >= set(names):
        raise site.wrong("a type of JSON or a list of types")
    accepted = {kind for name in names for kind in _ACCEPTED[name]}
    wanted = " or ".join(_NAMED[name] for name in names)
    refused = tuple(kind for kind in ANY if kind not in accepted)
    return Rule(refused, partial(_check_type, wanted, "integer" in names)) if refused else None


def _check_type(wanted: str, integers: bool, instance: Json, run: Run) -> Failure | None:
    # Sees the refused types only, and floats where integers are accepted.
    if integers and isinstance(instance, float) and instance.is_integer():
        return None
    return Failure("type", f"is {type_name(instance)}, not {wanted}")


def _enum(site: Site) -> Rule:
    if not isinstance(site.value, list):
        raise site.wrong("a list")
    run = Run(site.limits)
    keys = frozenset(equality_key(value, run) for value in site.value)
    shown = _shown(quoted(value, site.limits.max_quoted_chars) for value in site.value[:_MOST_SHOWN])
    more = "" if len(site.value) <= _MOST_SHOWN else f" and {len(site.value) - _MOST_SHOWN} more"
    return Rule(ANY, partial(_check_enum, keys, f"{shown}{more}"))


def _check_enum(keys: frozenset[str], shown: str, instance: Json, run: Run) -> Failure | None:
    if equality_key(instance, run) in keys:
        return None
    return Failure("enum", f"is none of the values allowed: {shown}")


def _const(site: Site) -> Rule:
    key = equality_key(site.value, Run(site.limits))
    return Rule(ANY, partial(_check_const, key, quoted(site.value, site.limits.max_quoted_chars)))


def _check_const(key: str, shown: str, instance: Json, run: Run) -> Failure | None:
    return None if equality_key(instance, run) == key else Failure("const", f"is not {shown}")


# --- numbers: 6.2 -------------------------------------------------------------------------------------------


def _multiple_of(site: Site) -> Rule:
    divisor = site.number()
    if divisor <= 0:
        raise site.wrong("a number above 0")
    return Rule(NUMBER, partial(_check_multiple, divisor, decimals_of(divisor)))


def _check_multiple(divisor: Number, decimals: Decimals, instance: Json, run: Run) -> Failure | None:
    # Arithmetic on numbers of hundreds of digits.
    run.spend(4)
    if is_multiple(instance, decimals):
        return None
    return Failure("multipleOf", "is {}, which is not a multiple of {}", instance, divisor)


def _bound(site: Site, check: Callable[[Number, Json, Run], Failure | None]) -> Rule:
    return Rule(NUMBER, partial(check, site.number()))


def _maximum(bound: Number, instance: Json, run: Run) -> Failure | None:
    if instance <= bound:
        return None
    return Failure("maximum", "is {}, at most {} is needed", instance, bound)


def _exclusive_maximum(bound: Number, instance: Json, run: Run) -> Failure | None:
    if instance < bound:
        return None
    return Failure("exclusiveMaximum", "is {}, less than {} is needed", instance, bound)


def _minimum(bound: Number, instance: Json, run: Run) -> Failure | None:
    if instance >= bound:
        return None
    return Failure("minimum", "is {}, at least {} is needed", instance, bound)


def _exclusive_minimum(bound: Number, instance: Json, run: Run) -> Failure | None:
    if instance > bound:
        return None
    return Failure("exclusiveMinimum", "is {}, more than {} is needed", instance, bound)


# --- sizes of strings, arrays and objects: 6.3.1, 6.3.2, 6.4.1, 6.4.2, 6.5.1, 6.5.2 -------------------------


def _most(types: tuple[type, ...], noun: str, site: Site) -> Rule:
    return Rule(types, partial(_check_most, site.keyword, noun, site.count()))


def _check_most(keyword: str, noun: str, most: int, instance: Json, run: Run) -> Failure | None:
    if len(instance) <= most:
        return None
    return Failure(keyword, f"has {counted(len(instance), noun)}, more than {most}")


def _least(types: tuple[type, ...], noun: str, site: Site) -> Rule | None:
    least = site.count()
    return Rule(types, partial(_check_least, site.keyword, noun, least)) if least else None


def _check_least(keyword: str, noun: str, least: int, instance: Json, run: Run) -> Failure | None:
    if len(instance) >= least:
        return None
    return Failure(keyword, f"has {counted(len(instance), noun)}, fewer than {least}")


# --- strings, arrays and objects: 6.3.3, 6.4.3, 6.5.3, 6.5.4 ------------------------------------------------


def _pattern(site: Site) -> Rule | None:
    text = site.text()
    pattern = site.pattern(text)
    if pattern is None:
        return None
    return Rule(STRING, partial(_check_pattern, pattern, quoted(text, site.limits.max_quoted_chars)))


def _check_pattern(pattern: Pattern, shown: str, instance: Json, run: Run) -> Failure | None:
    return (
        None if pattern.search(instance, run) else Failure("pattern", f"does not match the pattern {shown}")
    )


def _unique_items(site: Site) -> Rule | None:
    if not isinstance(site.value, bool):
        raise site.wrong("true or false")
    return Rule(ARRAY, _check_unique) if site.value else None


def _check_unique(instance: Json, run: Run) -> Failure | None:
    run.spend(len(instance))
    seen: dict[str, int] = {}
    for index, item in enumerate(instance):
        first = seen.setdefault(equality_key(item, run), index)
        if first != index:
            return Failure("uniqueItems", f"has equal items, {first} and {index}")
    return None


def _required(site: Site) -> Rule | None:
    names = site.names()
    return Rule(OBJECT, partial(_check_required, names)) if names else None


def _check_required(names: tuple[str, ...], instance: Json, run: Run) -> Failure | None:
    run.spend(len(names))
    for name in names:
        if name not in instance:
            return Failure("required", "lacks the property {}", name)
    return None


def _dependent_required(site: Site) -> Rule:
    needs = tuple((name, site.names(name)) for name in site.mapping())
    return Rule(OBJECT, partial(_check_dependent, site.keyword, needs))


def _check_dependent(
    keyword: str, needs: tuple[tuple[str, tuple[str, ...]], ...], instance: Json, run: Run
) -> Failure | None:
    run.spend(len(needs))
    for name, needed in needs:
        if name in instance:
            run.spend(len(needed))
            for other in needed:
                if other not in instance:
                    return Failure(keyword, "has the property {} and lacks {}", name, other)
    return None


KEYWORDS: Mapping[str, Compiler] = MappingProxyType(
    {
        "type": _type,
        "const": _const,
        "enum": _enum,
        "minimum": partial(_bound, check=_minimum),
        "maximum": partial(_bound, check=_maximum),
        "exclusiveMinimum": partial(_bound, check=_exclusive_minimum),
        "exclusiveMaximum": partial(_bound, check=_exclusive_maximum),
        "multipleOf": _multiple_of,
        "minLength": partial(_least, STRING, "character"),
        "maxLength": partial(_most, STRING, "character"),
        "pattern": _pattern,
        "minItems": partial(_least, ARRAY, "item"),
        "maxItems": partial(_most, ARRAY, "item"),
        "uniqueItems": _unique_items,
        "required": _required,
        "minProperties": partial(_least, OBJECT, "property"),
        "maxProperties": partial(_most, OBJECT, "property"),
        "dependentRequired": _dependent_required,
    }
)
