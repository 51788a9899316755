"""The language of the code gets plainer: no rule of ``tests.words`` is broken more often than it is today."""

from __future__ import annotations

import ast

import pytest

from tests.words import RULES, Breach, Module, read_modules

#: The breaches of each rule that are left. A smaller number takes the place of a larger one, never the other way round.
LEFT = {
    "participles": 254,
    "twins": 140,
    "long summaries": 4138,
    "riddles": 341,
    "raises": 0,
    "hints": 0,
    "maxima": 0,
    "vague names": 2222,
}

EXAMPLES = {
    "participles": ("def told(): ...", "def tell(): ..."),
    "twins": ("class A: ...\nclass A: ...", "class A: ...\nclass B: ..."),
    "long summaries": (f'"""{"x" * 81}"""', f'"""{"x" * 80}"""'),
    "riddles": ('"""Return those of the rows that are new."""', '"""Return the new rows."""'),
    "raises": ('"""Do it. Raises ``ValueError``."""', '"""Do it. Raise ``ValueError``."""'),
    "hints": ("f(hint='Pass a name.')", "f(hint='pass a name')"),
    "maxima": ("_MOST = 7", "_MAX_ROWS = 7"),
    "vague names": ("found = 7", "table = 7"),
}


@pytest.fixture(scope="module")
def modules() -> list[Module]:
    """Every module of the package, the apps and the integrations."""
    found = read_modules()
    assert len(found) > 500
    return found


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_finds_what_breaks_it_and_nothing_else(rule: str) -> None:
    bad, good = (list(RULES[rule]([Module("m.py", ast.parse(text))])) for text in EXAMPLES[rule])
    assert bad
    assert good == []


@pytest.mark.parametrize("rule", RULES)
def test_no_rule_is_broken_more_often_than_before(rule: str, modules: list[Module]) -> None:
    breaches: list[Breach] = list(RULES[rule](modules))
    assert len(breaches) <= LEFT[rule], f"python -m tests.words {rule!r} lists them"
