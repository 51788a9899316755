"""The tables of the documentation that are made from the code.

``python -m tests.docs.tables`` writes them into the pages; the tests check that the pages have them as they are.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from quacklake import errors
from quacklake.config import SETTINGS, Setting, describe_settings
from quacklake.core.format import conflicts
from quacklake.core.format.options import OPTIONS, Option, OptionType, Scope
from quacklake.core.maintenance.verify import RULES
from quacklake.errors import QuacklakeError, Transient
from quacklake.service.settings import SECTION, ServeSettings
from tests.docs.blocks import REPOSITORY
from tests.docs.connector_features import NAMES, ROLES, details_table, matrix_table
from tests.docs.connector_options import CONNECTORS
from tests.docs.connector_options import options_table as connector_table

__all__ = ["TABLES", "in_page"]


def errors_table() -> str:
    """Every class of the tree at the top of ``errors.py``."""
    lines = ["| class | code | again? | meaning |", "|---|---|---|---|"]
    for name, meaning in _meanings().items():
        kind = getattr(errors, name)
        again = "may help" if issubclass(kind, Transient) else "no"
        lines.append(f"| `{name}` | `{kind.code}` | {again} | {meaning} |")
    return "\n".join(lines)


def _meanings() -> dict[str, str]:
    """Class name -> what the tree says about it."""
    found = {}
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"[ │├└─]+(\w+) {2,}(\S.*)", line)
        if match is not None and isinstance(getattr(errors, match[1], None), type):
            found[match[1]] = re.sub(r"\s*\(Transient\)", "", match[2])
    assert set(found) == {name for name in vars(errors) if _is_error(name)}, "the tree and the classes differ"
    return found


def _is_error(name: str) -> bool:
    kind = getattr(errors, name)
    return isinstance(kind, type) and issubclass(kind, QuacklakeError)


def settings_table() -> str:
    """Every setting."""
    return _table_of(SETTINGS)


def service_settings_table() -> str:
    """Every setting of the service."""
    return _table_of(describe_settings(ServeSettings, SECTION))


def _table_of(settings: Iterable[Setting]) -> str:
    lines = ["| setting | default | from the environment | meaning |", "|---|---|---|---|"]
    for setting in settings:
        variables = ", ".join(f"`{name}`" for name in setting.env)
        meaning = setting.help + _allowed(setting)
        lines.append(f"| `{setting.name}` | {_default(setting)} | {variables} | {meaning} |")
    return "\n".join(lines)


def _default(setting: Setting) -> str:
    return f"`{setting.shown_default}`" if setting.shown_default else ""


def _allowed(setting: Setting) -> str:
    if setting.choices:
        return f"; one of {', '.join(f'`{choice}`' for choice in setting.choices)}"
    if setting.minimum is None:
        return ""
    lower = f"at least {setting.minimum:,}"
    return f"; {lower}" if setting.maximum is None else f"; {setting.minimum:,} to {setting.maximum:,}"


def options_table() -> str:
    """Return every option of a lake, schema or table."""
    lines = ["| option | default | set for | meaning |", "|---|---|---|---|"]
    for option in OPTIONS.values():
        scopes = ", ".join("lake" if scope is Scope.GLOBAL else scope.value for scope in option.scopes)
        lines.append(f"| `{option.name}` | {_option_default(option)} | {scopes} | {option.help} |")
    return "\n".join(lines)


def _option_default(option: Option) -> str:
    if option.default is None or option.default == "":
        return ""
    if option.type is OptionType.BYTES:
        return f"`{int(str(option.default)) >> 20}MiB`"
    return f"`{str(option.default).lower()}`"


def conflicts_table() -> str:
    """The conflict rules; cells that a read set changes show both."""
    groups, titles = conflicts._GROUPS, ("insert", "delete", "flush", "compact", "alter", "drop")
    lines = ["| mine \\ other | " + " | ".join(titles) + " |", "|---" * (len(groups) + 1) + "|"]
    for title, group in zip(titles, groups, strict=True):
        cells = []
        for other in groups:
            pair = (group[0], other[0])
            cell, read = conflicts.MATRIX[pair], conflicts.READ_MATRIX.get(pair)
            cells.append(cell.value if read is None else f"{cell.value} ({read.value} after a read)")
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def layers_block() -> str:
    """Return the layers of the linter's contract, from the top to the bottom."""
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract.get("containers") == ["quacklake"]]
    return "\n".join(["```text", *layers, "```"])


def rules_table() -> str:
    """Return the table of the rules that a verification checks."""
    lines = ["| code | finding | severity | repairable |", "|---|---|---|---|"]
    for rule in RULES.values():
        mended = "yes" if rule.repairable else "no"
        lines.append(f"| {rule.code} | {rule.breach} | {rule.severity} | {mended} |")
    return "\n".join(lines)


_CONNECTORS = REPOSITORY / "docs/reference/connectors.md"
TABLES: Mapping[str, tuple[Path, Callable[[], str]]] = {
    "errors": (REPOSITORY / "docs/reference/errors.md", errors_table),
    "settings": (REPOSITORY / "docs/reference/settings.md", settings_table),
    "service-settings": (REPOSITORY / "docs/reference/settings.md", service_settings_table),
    "conflicts": (REPOSITORY / "docs/internals/committing.md", conflicts_table),
    "layers": (REPOSITORY / "CONTRIBUTING.md", layers_block),
    "options": (REPOSITORY / "docs/guides/options-and-keys.md", options_table),
    "rules": (REPOSITORY / "docs/guides/verify-and-backup.md", rules_table),
    **{
        f"{name}-options": (REPOSITORY / f"docs/connectors/{name.split('-')[0]}.md", partial(connector_table, name))
        for name in CONNECTORS
    },
    **{f"{role}-features": (_CONNECTORS, partial(matrix_table, role)) for role in ROLES},
    **{f"{name}-features": (_CONNECTORS, partial(details_table, name)) for name in NAMES},
}
"""Name -> the page that has the table between ``<!-- name -->`` and ``<!-- /name -->``, and how it is made."""


def in_page(name: str) -> str:
    """The table as the page has it."""
    page, _ = TABLES[name]
    match = _place(name).search(page.read_text(encoding="utf-8"))
    assert match is not None, f"{page.name} has no place for the table of {name}"
    return match[2].strip()


def _place(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- {name} -->\n)(.*?)(<!-- /{name} -->)", re.DOTALL)


def _write(name: str) -> None:
    page, make = TABLES[name]
    content = page.read_text(encoding="utf-8")
    # as a function, because the replacement is not a pattern
    page.write_text(_place(name).sub(lambda match: f"{match[1]}\n{make()}\n\n{match[3]}", content), encoding="utf-8")


if __name__ == "__main__":
    for each in TABLES:
        _write(each)
