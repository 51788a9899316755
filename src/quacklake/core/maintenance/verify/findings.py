"""The rules and findings of a verification, with texts that stay the same across versions."""

from __future__ import annotations

import bisect
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from quacklake.core.format.snapshots import Snapshot
from quacklake.core.maintenance.reports import Skipped
from quacklake.core.progress import Report

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of every healthy lake. An error means that a client reads wrong data or cannot read; a warning may."""

    code: str
    breach: str
    severity: Severity = "error"
    hint: str = "restore the lake from a backup"
    repairable: bool = False


_REPAIR = "lake.maintenance.repair() or `quacklake verify --repair` repairs it"
_FILE = "restore the file from a backup, or delete the rows that were in it"

_RULES = (
    Rule(
        "V001", "a snapshot without a record of its changes, or the reverse", "warning", "other clients may refuse it"
    ),
    Rule("V002", "changes that no client understands", hint="every later commit of a stock client fails on it"),
    Rule("V003", "changes of an object that never existed"),
    Rule("V004", "the counter of catalog ids is too low", hint=_REPAIR, repairable=True),
    Rule("V005", "the counter of file ids is too low", hint=_REPAIR, repairable=True),
    Rule("V006", "the counter of row ids is too low", hint=_REPAIR, repairable=True),
    Rule("V007", "a counter that goes backwards"),
    Rule("V008", "no snapshot at all"),
    Rule("V010", "a lifetime that ends before it begins, or lies in the future"),
    Rule("V011", "two rows for one object at the same time"),
    Rule("V012", "two objects with one name at the same time"),
    Rule("V020", "an object that exists while its schema does not"),
    Rule("V021", "an object that exists while its table does not"),
    Rule("V022", "a delete file without a data file"),
    Rule("V023", "columns that do not form a table"),
    Rule("V024", "a column that its table never had"),
    Rule("V025", "statistics or values of a file that does not exist", "warning", _REPAIR, True),
    Rule("V026", "a partitioning that the table never had"),
    Rule("V027", "a name mapping that the table does not have"),
    Rule(
        "V028",
        "statistics of a column that its table never had",
        "warning",
        "a column that was dropped in the transaction that made it leaves these",
    ),
    Rule("V030", "two delete files of one data file at the same time"),
    Rule("V031", "an impossible number of rows or bytes"),
    Rule("V032", "two files with the same row ids at the same time"),
    Rule("V033", "an inlined row id that exists twice"),
    Rule("V034", "a bound that is not of its column's type", "warning", _REPAIR, True),
    Rule("V035", "a lower bound above the upper one", hint=_REPAIR, repairable=True),
    Rule("V036", "a table without totals", hint=_REPAIR, repairable=True),
    Rule("V037", "totals that are too low", "warning", _REPAIR, True),
    Rule("V038", "several totals of one table", hint=_REPAIR, repairable=True),
    Rule("V040", "schema versions out of order"),
    Rule("V041", "a table of inlined rows that is missing"),
    Rule("V042", "a table of inlined rows whose columns are not those of its version"),
    Rule("V043", "inlined rows that the catalog does not know of", "warning"),
    Rule("V044", "an inlined row with an impossible lifetime"),
    Rule("V045", "inlined deletes of a file that is gone", "warning", _REPAIR, True),
    Rule("V046", "an inlined delete of a row that the file does not have"),
    Rule("V047", "an inlined delete that came after its file had ended", hint="the row it deleted is still visible"),
    Rule("V050", "an option that no client knows", "warning", "lake.options.list() shows it"),
    Rule("V051", "an option with an invalid value", "warning", "set it again"),
    Rule("V052", "an option of an object that never existed", "warning", "it has no effect"),
    Rule("V053", "a property of the lake that is missing or invalid"),
    Rule("V054", "a data path that is not the catalog's in the shared lake", hint=_REPAIR, repairable=True),
    Rule("V060", "a path that leads out of its folder"),
    Rule("V061", "one file in several rows"),
    Rule("V062", "a file in use that is scheduled for deletion", hint=_REPAIR, repairable=True),
    Rule("V063", "a file of an encrypted lake without a usable key"),
    Rule("V070", "a file that is missing", hint=_FILE),
    Rule("V071", "a file of another size than recorded", hint=_FILE),
    Rule("V072", "a file that cannot be read", hint=_FILE),
    Rule("V073", "a footer of another size than recorded", "warning", "some clients fail to open the file"),
    Rule("V074", "a file with another number of rows than recorded", hint=_FILE),
    Rule("V075", "a file with columns that its table never had", "warning", "their values are never read"),
    Rule("V080", "statistics that do not bound the data of a file", hint=_REPAIR, repairable=True),
    Rule("V081", "a count of NULLs that differs from the file", hint=_REPAIR, repairable=True),
    Rule("V082", "NaN in a file that is recorded to have none", hint=_REPAIR, repairable=True),
    Rule("V083", "a delete file with positions out of order or outside its data file"),
    Rule("V084", "a row of a snapshot in which its file did not exist"),
    Rule("V085", "two rows with one row id"),
    Rule(
        "V086",
        "statistics that do not bound the data of a table",
        "warning",
        "other clients may answer wrongly: " + _REPAIR,
        True,
    ),
    Rule("V087", "a row id that will be assigned again", hint=_REPAIR, repairable=True),
    Rule("V088", "a file whose rows cannot be read", hint=_FILE),
    Rule(
        "V089",
        "128-bit integers that a file holds as doubles, perhaps rounded",
        "warning",
        "other clients round beyond 2**53: compare with the source, or keep such numbers as DECIMAL(38, 0)",
    ),
    Rule(
        "V090",
        "a materialized view that is not the answer of its query",
        hint="REFRESH MATERIALIZED VIEW … FULL computes it anew; VERIFY MATERIALIZED VIEW shows the rows",
    ),
)
RULES: Mapping[str, Rule] = MappingProxyType({rule.code: rule for rule in _RULES})
"""Every rule by its code."""


@dataclass(frozen=True, slots=True)
class Fix:
    action: str
    values: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """A violated rule. ``code`` is stable; ``what`` describes the problem to people."""

    code: str
    severity: Severity
    what: str
    table: str | None = None
    file_id: int | None = None
    hint: str = ""
    repairable: bool = False
    fix: Fix | None = field(default=None, repr=False)


def finding(
    code: str, detail: str, *, table: str | None = None, file_id: int | None = None, fix: Fix | None = None
) -> Finding:
    """Return a finding of a rule; it is repairable if it has a fix."""
    rule = RULES[code]
    hint = rule.hint if fix is not None or not rule.repairable else "restore the lake from a backup"
    return Finding(code, rule.severity, f"{rule.breach}: {detail}", table, file_id, hint, fix is not None, fix)


@dataclass(frozen=True, slots=True)
class VerifyReport(Report):
    """Report of a verification; ``skipped`` lists what was not checked, and rules with too many findings."""

    snapshot: int
    deep: bool
    findings: tuple[Finding, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    files: int = 0
    checks: int = 0

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(found for found in self.findings if found.severity == "error")

    @property
    def ok(self) -> bool:
        """True when nothing was found, not even a warning."""
        return not self.findings


@dataclass(frozen=True, slots=True)
class RepairReport(Report):
    """Report of a repair, or with ``dry_run`` of its plan. ``snapshot`` is the new snapshot."""

    dry_run: bool
    repaired: tuple[Finding, ...] = ()
    left: tuple[Finding, ...] = ()
    snapshot: int | None = None


LIMIT = 100
"""The most findings of one code that are reported."""


@dataclass
class Known:
    """The lake as the checks see it."""

    latest: Snapshot
    tables: dict[int, str]
    encrypted: bool
    #: The data path that the registry of a shared lake gives the catalog.
    data_path: str | None = None
    snapshots: array[int] = field(default_factory=lambda: array("q"))
    #: The highest values that the counters of catalog ids and file ids have ever had.
    counted: tuple[int, int] = (0, 0)

    def name(self, table_id: int | None) -> str:
        return self.tables.get(table_id, f"table {table_id}") if table_id is not None else "the lake"

    def seen(self, begin: int, end: int) -> bool:
        """Return whether a snapshot exists from ``begin`` to before ``end``; rows that no snapshot shows do no harm."""
        place = bisect.bisect_left(self.snapshots, begin)
        return place < len(self.snapshots) and self.snapshots[place] < end


class Collector:
    """Collects the first findings of each code, so that a ruined lake does not fill the memory."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.skipped: list[Skipped] = []
        self.files = 0
        self._counts: Counter[str] = Counter()

    def take(self, found: Iterable[Finding]) -> None:
        """Add findings; beyond the limit of a code they are only counted."""
        for each in found:
            self._counts[each.code] += 1
            if self._counts[each.code] <= LIMIT:
                self.findings.append(each)

    def skip(self, what: str, reason: str) -> None:
        if len(self.skipped) < LIMIT:
            self.skipped.append(Skipped(what, reason))

    def overflow(self) -> list[Skipped]:
        """Return the codes with findings that were only counted."""
        return [
            Skipped(f"{count - LIMIT} more findings of {code}", f"only the first {LIMIT} of a kind are reported")
            for code, count in self._counts.items()
            if count > LIMIT
        ]
