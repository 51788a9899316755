"""DuckDB's text functions in Spark SQL, by DuckDB's names."""

from __future__ import annotations

from collections.abc import Mapping

from quacklake.spark.expressions.casts import TEXTS, failing
from quacklake.spark.expressions.function_calls import TEXT, Maker, TranslatedCall
from quacklake.spark.runtime.types import literal


def _joined(call: TranslatedCall) -> str | None:
    if any(each.column.nested or each.type == "blob" for each in call.arguments):
        return None
    call.type = TEXT  # DuckDB has no type for a value that is always NULL
    return f"{call.cast(0, TEXT)} || {call.cast(1, TEXT)}"


def _concat(call: TranslatedCall) -> str | None:
    """Translate ``concat``, which ignores NULL in DuckDB."""
    return f"concat_ws('', {', '.join(call.all(TEXT))})" if call.type.type == "varchar" else None


def _concat_with(call: TranslatedCall) -> str | None:
    return f"concat_ws({', '.join(call.all(TEXT))})"


#: Letters that Spark or DuckDB turns into several, treats differently at the end of a word, or does not know yet.
_LOWER = r"\x{130}\x{3a3}\x{1c89}\x{a7cb}\x{a7cc}\x{a7da}\x{a7dc}\x{10d50}-\x{10d65}"
_UPPER = (
    r"\x{df}\x{149}\x{19b}\x{1f0}\x{264}\x{390}\x{3b0}\x{587}\x{1c8a}\x{1e96}-\x{1e9a}\x{1f50}-\x{1f56}\x{1f80}-\x{1ffc}"
    r"\x{a7cd}\x{a7db}\x{fb00}-\x{fb17}\x{10d70}-\x{10d85}"
)
_ODD: Mapping[str, str] = {"lower": _LOWER, "upper": _UPPER}


def _cased(call: TranslatedCall) -> str | None:
    word = {"lcase": "lower", "ucase": "upper"}.get(call.name, call.name)
    return _case_of(word, call.sql(0)) if call.are_texts() else None


def _case_of(word: str, value: str) -> str:
    wrong = failing(f"a text has letters whose {word} case Spark and DuckDB do not agree on")
    return f"CASE WHEN {value} RLIKE {literal(f'[{_ODD[word]}]')} THEN {wrong} ELSE {word}({value}) END"


def _length(call: TranslatedCall) -> str | None:
    if call.types == ["list"]:
        return f"CAST(array_size({call.sql(0)}) AS BIGINT)"
    return f"CAST(char_length({call.sql(0)}) AS BIGINT)" if call.are_texts() else None


def _part(call: TranslatedCall) -> str | None:
    """Translate ``substring`` with a start from 1. DuckDB counts positions before the first character."""
    start, length = call.number(1), call.number(2)
    if call.types[0] not in TEXTS or start is None or start < 1 or (call.count == 3 and (length is None or length < 0)):
        return None
    return f"substring({', '.join([call.sql(0), str(start), *([] if length is None else [str(length)])])})"


def _end(call: TranslatedCall) -> str | None:
    length = call.number(1)
    return (
        f"{call.name}({call.sql(0)}, {length})"
        if call.types[0] in TEXTS and length is not None and length >= 0
        else None
    )


def _trimmed(call: TranslatedCall) -> str | None:
    """Translate ``trim``, which removes every kind of space in DuckDB, or the given characters."""
    value = call.sql(0)
    if not call.are_texts():
        return None
    side = {"trim": "BOTH", "ltrim": "LEADING", "rtrim": "TRAILING"}[call.name]
    if call.count == 2:
        return f"trim({side} {call.cast(1, TEXT)} FROM {value})"
    spaces = {"BOTH": "^\\p{Zs}+|\\p{Zs}+\\z", "LEADING": "^\\p{Zs}+", "TRAILING": "\\p{Zs}+\\z"}[side]
    return f"regexp_replace({value}, {literal(spaces)}, '')"


def _texts(name: str) -> Maker:
    """Return a translation for a text function that Spark has under the given name."""
    return lambda call: f"{name}({', '.join(call.all(TEXT))})" if call.are_texts() else None


def _position(call: TranslatedCall) -> str | None:
    return f"CAST(instr({call.cast(0, TEXT)}, {call.cast(1, TEXT)}) AS BIGINT)" if call.are_texts() else None


def _padded(call: TranslatedCall) -> str | None:
    fits = call.types[0] in TEXTS and (call.number(1) or 0) > 0 and bool(call.constant(2))
    return f"{call.name}({call.sql(0)}, {call.number(1)}, {call.sql(2)})" if fits else None


def _like(call: TranslatedCall) -> str | None:
    """Translate all forms of LIKE. DuckDB has no escape character unless one is given."""
    negated = call.name.startswith(("!", "not_"))
    folded = call.name.endswith("*") or "ilike" in call.name
    pattern = call.constant(1)
    if call.types[0] not in TEXTS or pattern is None or (call.count == 3 and call.constant(2) is None):
        return None
    tokens = _pattern(pattern, (call.constant(2) or "") if call.count == 3 else "")
    if tokens is None:
        return None
    if folded and not pattern.isascii():
        return None
    said = "".join(char if special or char not in "%_!" else f"!{char}" for char, special in tokens)
    value = _case_of("lower", call.sql(0)) if folded else call.sql(0)
    found = f"({value} LIKE {literal(said.lower() if folded else said)} ESCAPE '!')"
    return f"NOT {found}" if negated else found


def _pattern(pattern: str, escape: str) -> list[tuple[str, bool]] | None:
    """Return the characters of a pattern, each with True for a wildcard; None for an invalid pattern."""
    found: list[tuple[str, bool]] = []
    characters = iter(pattern)
    for char in characters:
        if escape and char == escape:
            following = next(characters, None)
            if following is None:
                return None
            found.append((following, False))
        else:
            found.append((char, char in "%_"))
    return found


OF_TEXTS: Mapping[str, Maker] = {
    "||": _joined,
    "concat": _concat,
    "concat_ws": _concat_with,
    **dict.fromkeys(("lower", "lcase", "upper", "ucase"), _cased),
    **dict.fromkeys(("length", "len", "char_length", "character_length", "array_length", "list_length"), _length),
    **dict.fromkeys(("substring", "substr"), _part),
    **dict.fromkeys(("left", "right"), _end),
    **dict.fromkeys(("trim", "ltrim", "rtrim"), _trimmed),
    "replace": _texts("replace"),
    **dict.fromkeys(("starts_with", "prefix", "^@"), _texts("startswith")),
    **dict.fromkeys(("ends_with", "suffix"), _texts("endswith")),
    "contains": _texts("contains"),
    "md5": _texts("md5"),
    **dict.fromkeys(("instr", "strpos", "position"), _position),
    **dict.fromkeys(("lpad", "rpad"), _padded),
    **dict.fromkeys(("~~", "!~~", "~~*", "!~~*"), _like),
    **dict.fromkeys(("like_escape", "not_like_escape", "ilike_escape", "not_ilike_escape"), _like),
}
