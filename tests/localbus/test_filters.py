"""The filter language."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localbus import filters
from localbus.errors import InvalidArgument
from localbus.filters import All, AnyOf, Equals, Expression, Has, HasPrefix, Not

KEYS = st.sampled_from(["a", "b-c", "d_e", "1f", "sp ace", "iana.org/tag", 'quo"te', "AND", "é"])
VALUES = st.sampled_from(["", "x", "xy", "y", 'say "x"', "back\\slash", "line\nbreak", "é"])


def expressions() -> st.SearchStrategy[Expression]:
    leaves: st.SearchStrategy[Expression] = st.one_of(
        st.builds(Has, KEYS), st.builds(Equals, KEYS, VALUES), st.builds(HasPrefix, KEYS, VALUES)
    )

    def grow(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
        parts = st.lists(inner, min_size=2, max_size=3).map(tuple)
        return st.one_of(st.builds(Not, inner), st.builds(All, parts), st.builds(AnyOf, parts))

    return st.recursive(leaves, grow, max_leaves=6)


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def key(text: str) -> str:
    plain = text.isascii() and text.replace("-", "").replace("_", "").isalnum()
    return text if plain else quoted(text)


def written(expression: Expression) -> str:
    """The expression as a person would type it."""
    match expression:
        case Has(name):
            return f"attributes:{key(name)}"
        case Equals(name, value):
            return f"attributes.{key(name)} = {quoted(value)}"
        case HasPrefix(name, prefix):
            return f"hasPrefix(attributes.{key(name)}, {quoted(prefix)})"
        case Not(inner):
            return f"NOT ({written(inner)})"
        case All(parts):
            return " AND ".join(f"({written(part)})" for part in parts)
        case AnyOf(parts):
            return " OR ".join(f"({written(part)})" for part in parts)


SHORT = expressions().filter(lambda found: len(written(found).encode()) <= 256)


@given(SHORT)
def test_what_is_written_is_what_is_read(expression: Expression) -> None:
    """Parsing the text of an expression gives the expression back."""
    assert filters.parse(written(expression)) == expression


@given(SHORT, st.dictionaries(KEYS, VALUES))
def test_required_equality_is_necessary(expression: Expression, found: dict[str, str]) -> None:
    """No message passes a filter without fulfilling the equality that the index relies on."""
    required = filters.required_equality(expression)
    if required is not None and filters.matches(expression, found):
        assert found.get(required.key) == required.value


@given(st.text(max_size=80))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    """No text makes the parser fail in another way than InvalidArgument."""
    try:
        filters.parse(text)
    except InvalidArgument as error:
        assert "filter" in str(error)


@pytest.mark.parametrize(
    ("text", "attributes", "passes"),
    [
        ("attributes:a", {"a": ""}, True),
        ("attributes:a", {"b": "a"}, False),
        ('attributes.a = "x"', {"a": "x"}, True),
        ('attributes.a = "x"', {}, False),
        ('attributes.a != "x"', {"a": "y"}, True),
        ('attributes.a != "x"', {}, True),
        ('hasPrefix(attributes.a, "x")', {"a": "xyz"}, True),
        ('hasPrefix(attributes.a, "x")', {}, False),
        ("NOT attributes:a AND attributes:b", {"b": ""}, True),
        ("-attributes:a", {"a": ""}, False),
        ('attributes."iana.org/tag" = "en"', {"iana.org/tag": "en"}, True),
        ('attributes.a="\\u00e9\\x41\\101"', {"a": "éAA"}, True),
        ("(attributes:a OR attributes:b) AND attributes:c", {"b": "", "c": ""}, True),
        ("attributes:a OR (attributes:b AND attributes:c)", {"b": ""}, False),
    ],
)
def test_meaning(text: str, attributes: dict[str, str], passes: bool) -> None:
    """Each form of the language means what Google's documentation says."""
    assert filters.matches(filters.parse(text), attributes) is passes


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "nonsense", "attributes", "attributes.", "attributes.a", "attributes.a = x",
        'attributes.a == "x"', 'attributes.a = "x', "attributes:a attributes:b", "(attributes:a",
        "attributes:a)", "attributes:a AND", "OR attributes:a", "attributes:a and attributes:b",
        "attributes:a AND attributes:b OR attributes:c", 'data = "x"', 'attributes.a > "1"',
        'hasPrefix(a, "x")', "hasPrefix(attributes.a)", 'attributes.a = "\\q"', "NOT",
        "(" * 120 + "attributes:a" + ")" * 120,
        'attributes.a = "' + "x" * 256 + '"',
    ],
)  # fmt: skip
def test_bad_filters_are_refused(text: str) -> None:
    """What is not in the language is refused, with the word filter in the message."""
    with pytest.raises(InvalidArgument, match="filter"):
        filters.parse(text)
