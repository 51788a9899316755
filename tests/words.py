"""Reads the names and texts of the code by its syntax trees, and finds those that break the rules of our language.

``python -m tests.words`` prints how often each rule is broken, ``python -m tests.words participles`` each place.
The rules stand in ``docs/design.md`` under "Words".
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
FOLDERS = ("src", "apps", "integrations")
LONGEST_SUMMARY = 80
_IRREGULAR = frozenset(
    """
    begun bound broken brought built chosen cut done drawn driven fallen found given gone grown had heard held hidden
    kept known laid led left lent lost made meant met paid put read said seen sent shown spent split stood taken told
    thrown understood won worn written
    """.split()  # noqa: SIM905
)
_VERBS = frozenset("cut embed exceed feed need proceed put read seed shed shred speed split".split())  # noqa: SIM905
"""Verbs that look like participles."""
_STATES = ("property", "cached_property", "setter", "overload")
"""Decorators of methods whose names are states and no actions."""
_RIDDLES = re.compile(r"\b(?:that of|those of|one that|ones that|so many|of which|of whom)\b")
_MAXIMUM = re.compile(r"^_?(?:MOST|LONGEST|LARGEST|FEWEST|BIGGEST)(?:_|$)")
_PROPER = frozenset(
    "Content Delta Duck DuckDB DuckLake Hudi Iceberg Java None PostgreSQL Python Quacklake Spark Temperature".split()  # noqa: SIM905
)
"""Words that have a capital at the beginning of a hint, too: proper names, values, headers and columns."""
_VAGUE = frozenset(["each", "found", "given", "known"])


@dataclass(frozen=True, slots=True)
class Breach:
    """A place where a rule is broken."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


@dataclass(frozen=True, slots=True)
class Module:
    """The syntax tree of one file."""

    path: str
    tree: ast.Module

    def find(self, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
        """Yield the nodes of these kinds."""
        return (node for node in ast.walk(self.tree) if isinstance(node, kinds))

    def breach(self, node: ast.AST, text: str) -> Breach:
        """Return a breach at a node."""
        return Breach(self.path, getattr(node, "lineno", 1), text)


def read_modules(repository: Path = REPOSITORY) -> list[Module]:
    """Parse every file of the package, the apps and the integrations, without their tests."""
    paths = (path for folder in FOLDERS for path in sorted((repository / folder).rglob("*.py")))
    names = ((path, str(path.relative_to(repository))) for path in paths)
    return [Module(name, ast.parse(path.read_text(encoding="utf-8"))) for path, name in names if "/tests/" not in name]


def find_participles(modules: list[Module]) -> Iterator[Breach]:
    """Yield functions whose whole name is a participle: ``told``, ``_marked``.

    >>> tree = ast.parse("def told(): ...\\ndef read(): ...\\ndef sorted_rows(): ...")
    >>> [breach.text for breach in find_participles([Module("m.py", tree)])]
    ['told']
    """
    for module in modules:
        for node in module.find(ast.FunctionDef, ast.AsyncFunctionDef):
            assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            if _is_participle(node.name.strip("_")) and not any(map(_names_state, node.decorator_list)):
                yield module.breach(node, node.name)


def _is_participle(name: str) -> bool:
    return name not in _VERBS and (name in _IRREGULAR or (name.isalpha() and name.endswith("ed")))


def _names_state(decorator: ast.expr) -> bool:
    return ast.unparse(decorator).split(".")[-1] in _STATES


def find_twins(modules: list[Module]) -> Iterator[Breach]:
    """Yield classes whose name another class has, too."""
    found = [(module, node) for module in modules for node in module.find(ast.ClassDef)]
    counts = Counter(node.name for _, node in found if isinstance(node, ast.ClassDef))
    for module, node in found:
        if isinstance(node, ast.ClassDef) and counts[node.name] > 1:
            yield module.breach(node, node.name)


def _summaries(module: Module) -> Iterator[tuple[ast.AST, str]]:
    """Yield the first line of each docstring."""
    for node in module.find(ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef):
        assert isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        text = ast.get_docstring(node)
        if text:
            yield node, text.splitlines()[0]


def find_long_summaries(modules: list[Module]) -> Iterator[Breach]:
    """Yield docstrings whose first line is too long."""
    for module in modules:
        for node, line in _summaries(module):
            if len(line) > LONGEST_SUMMARY:
                yield module.breach(node, line)


def find_riddles(modules: list[Module]) -> Iterator[Breach]:
    """Yield docstrings whose first line hangs on a clause such as "that of" or "one that"."""
    for module in modules:
        for node, line in _summaries(module):
            if _RIDDLES.search(line):
                yield module.breach(node, line)


def find_third_persons(modules: list[Module]) -> Iterator[Breach]:
    """Yield docstrings that say "Raise": the imperative is "Raise"."""
    for module in modules:
        for node in module.find(ast.Constant):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.search(r"\bRaises\b", node.value):
                yield module.breach(node, node.value.strip().splitlines()[0])


def find_hints(modules: list[Module]) -> Iterator[Breach]:
    """Yield hints of errors that begin with a capital or end with a full stop."""
    for module in modules:
        for node in module.find(ast.keyword):
            if isinstance(node, ast.keyword) and node.arg == "hint":
                for text in _texts(node.value):
                    begins = re.match(r"([A-Z][a-z]*) ?\b", text)
                    if (begins and begins[1] not in _PROPER) or re.search(r"[^.]\.$", text):
                        yield module.breach(node.value, text)


def _texts(node: ast.expr) -> Iterator[str]:
    """Yield the texts that an expression may be, without what is filled in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    elif isinstance(node, ast.IfExp | ast.BoolOp):
        for part in (node.body, node.orelse) if isinstance(node, ast.IfExp) else node.values:
            yield from _texts(part)


def find_maxima(modules: list[Module]) -> Iterator[Breach]:
    """Yield constants that are maxima and are not called ``MAX_…``."""
    for module in modules:
        for node in module.find(ast.Name):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and _MAXIMUM.match(node.id):
                yield module.breach(node, node.id)


def find_vague_names(modules: list[Module]) -> Iterator[Breach]:
    """Yield variables whose name says nothing: ``found``, ``each``, ``known``, ``given``."""
    for module in modules:
        for node in module.find(ast.Name):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in _VAGUE:
                yield module.breach(node, node.id)


RULES: dict[str, Callable[[list[Module]], Iterator[Breach]]] = {
    "participles": find_participles,
    "twins": find_twins,
    "long summaries": find_long_summaries,
    "riddles": find_riddles,
    "raises": find_third_persons,
    "hints": find_hints,
    "maxima": find_maxima,
    "vague names": find_vague_names,
}


def main() -> None:
    """Print the count of each rule, or the places of one."""
    modules = read_modules()
    for name in sys.argv[1:]:
        print(*RULES[name](modules), sep="\n")
    if not sys.argv[1:]:
        for name, find in RULES.items():
            print(f"{sum(1 for _ in find(modules)):>6}  {name}")


if __name__ == "__main__":
    main()
