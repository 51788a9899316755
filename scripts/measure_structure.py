"""Measure how the packages hang together: lines, arrows between folders, and what products take from the core.

``python scripts/measure_structure.py`` prints five figures and what each app takes from the package, ``--folders`` a
line for each folder, and ``--names`` all that is imported from the core.
"""

from __future__ import annotations

import argparse
import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
SOURCE = REPOSITORY / "src" / "quacklake"
#: What everybody may import, beside the public names.
FOR_ALL = frozenset(["config", "errors", "extend", "plugins", "telemetry"])
#: What one must hold to work on the core.
CORE = FOR_ALL | {"core"}
#: The objects that users hold, and the rows people bring: between the core and everything else.
OBJECTS = frozenset(["__init__", "inputs", "lake"])
_API = "extend"
_SERVICES = ("catalog", "store", "engine")
"""Attributes of a lake's context that are rooms of their own."""


@dataclass(frozen=True, slots=True)
class Import:
    """One imported name: by which folder, and from which module."""

    importer: str
    module: str
    name: str

    @property
    def folder(self) -> str:
        """The folder that the module is in."""
        return _find_folder(self.module.split(".")[1:])


@dataclass
class Structure:
    """The imports, lines and reaches that the syntax trees of a package show."""

    lines: Counter[str] = field(default_factory=Counter)
    imports: list[Import] = field(default_factory=list)
    reaches: Counter[str] = field(default_factory=Counter)

    @property
    def arrows(self) -> set[tuple[str, str]]:
        """The pairs of folders of which one imports from the other."""
        return {(each.importer, each.folder) for each in self.imports if each.folder not in ("", each.importer)}

    def imports_of_products(self) -> list[Import]:
        """Return what products and interfaces import from the core itself, around the extension API."""
        return [each for each in self.imports if _is_outside(each.importer) and each.folder.split(".")[0] == "core"]

    def imports_of_the_api(self) -> list[Import]:
        """Return what products and interfaces import from the extension API."""
        return [each for each in self.imports if _is_outside(each.importer) and each.folder == _API]


def _find_folder(parts: Sequence[str]) -> str:
    """Return the folder of a module of the package: ``pond``, or ``core.scan``, since the core is one of folders."""
    top, *below = parts or [""]
    return f"core.{below[0]}" if top == "core" and below else top


def _is_core(folder: str) -> bool:
    return folder.split(".")[0] in CORE


def _is_outside(folder: str) -> bool:
    return not _is_core(folder) and folder not in OBJECTS


def measure(source: Path = SOURCE) -> Structure:
    """Read all modules of a package."""
    found = Structure()
    for path in sorted(source.rglob("*.py")):
        relative = path.relative_to(source)
        folder = _find_folder(relative.with_suffix("").parts)
        text = path.read_text()
        found.lines[folder] += text.count("\n")
        tree = ast.parse(text)
        found.imports += _find_imports(tree, folder)
        found.reaches[folder] += sum(1 for node in ast.walk(tree) if _is_reach(node))
    return found


def _find_imports(tree: ast.AST, folder: str) -> Iterator[Import]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "quacklake":
            for alias in node.names:
                module = f"{node.module}.{alias.name}"
                if node.module in ("quacklake", "quacklake.core") and _is_module(module):
                    yield Import(folder, module, alias.name)
                elif node.module != "quacklake":  # what is public has no folder
                    yield Import(folder, node.module, alias.name)


def _is_module(name: str) -> bool:
    path = SOURCE.joinpath(*name.split(".")[1:])
    return path.is_dir() or path.with_suffix(".py").is_file()


def _is_reach(node: ast.AST) -> bool:
    """Return whether an expression goes through the context of a handle to one of its services."""
    return (
        isinstance(node, ast.Attribute)
        and node.attr in _SERVICES
        and isinstance(node.value, ast.Attribute | ast.Name)
        and (node.value.attr if isinstance(node.value, ast.Attribute) else node.value.id) in ("context", "_context")
    )


def print_folders(found: Structure) -> None:
    """Print a line for each folder, those of the core first."""
    print(f"{'folder':<18}{'lines':>8}{'imports from':>14}{'imported by':>13}{'reaches':>9}")
    for folder in sorted(found.lines, key=lambda folder: (not _is_core(folder), -found.lines[folder])):
        imported = sum(1 for importer, _ in found.arrows if importer == folder)
        importers = sum(1 for _, target in found.arrows if target == folder)
        print(f"{folder:<18}{found.lines[folder]:>8}{imported:>14}{importers:>13}{found.reaches[folder]:>9}")
    print()


def count_importers(found: Structure) -> dict[str, Counter[str]]:
    """Return for each name of the core how often each folder outside imports it."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for each in found.imports_of_products():
        counts[f"{each.module}.{each.name}"][each.importer] += 1
    return dict(sorted(counts.items(), key=lambda item: -item[1].total()))


def print_summary(found: Structure) -> None:
    """Print the figures that are to fall."""
    core = sum(count for folder, count in found.lines.items() if _is_core(folder))
    names, folders = count_importers(found), len(found.lines)
    imports = sum(importers.total() for importers in names.values())
    single = sum(1 for importers in names.values() if len(importers) == 1)
    reaches = sum(count for folder, count in found.reaches.items() if _is_outside(folder))
    print(f"lines: {core:,} of {found.lines.total():,} are the core")
    print(f"arrows: {len(found.arrows)} of {folders * (folders - 1) // 2} between {folders} folders")
    print(f"names around the API: {len(names)} in {imports:,} imports by others, {single} of them for one folder only")
    through = found.imports_of_the_api()
    used = len({(each.module, each.name) for each in through})
    print(f"names of the extension API: {used} in {len(through):,} imports by others")
    print(f"reaches through a context by others: {reaches}")


def print_apps(repository: Path = REPOSITORY) -> None:
    """Print for each app what it imports from the package beside its public names and errors."""
    for folder in sorted(repository.glob("apps/*/src/*")):
        found = measure(folder)
        names = {f"{each.module}.{each.name}" for each in found.imports if each.folder not in ("errors", "")}
        print(f"{folder.name}: {found.lines.total():,} lines, {len(names)} names of modules of the package")


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folders", action="store_true", help="print a line for each folder")
    parser.add_argument("--names", action="store_true", help="print all names that are imported from the core")
    chosen = parser.parse_args()
    found = measure()
    if chosen.folders:
        print_folders(found)
    print_summary(found)
    print_apps()
    for name, importers in count_importers(found).items() if chosen.names else ():
        by_folder = ", ".join(f"{folder} {count}" for folder, count in importers.items())
        print(f"{importers.total():>4}  {name}  {by_folder}")


if __name__ == "__main__":
    main()
