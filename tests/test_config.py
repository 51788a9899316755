from __future__ import annotations

import logging
import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import FrozenInstanceError, fields
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import quacklake
from quacklake.config import (
    SETTINGS,
    Config,
    Secret,
    parse_duration,
    parse_size,
    redact,
    resolve,
    resolve_section,
    resolver,
    unknown_variables,
)
from quacklake.errors import ConfigError
from quacklake.service.settings import ServeSettings


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def source(config: Config, name: str) -> str:
    return config.sources[name]


@contextmanager
def collect_messages() -> Iterator[list[str]]:
    """Collect what is logged about settings: ``caplog`` loses it once a test has set up logging, or gets it twice."""
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("quacklake.config")
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)


class TestPrecedence:
    def test_a_flag_beats_the_environment_beats_the_file_beats_the_default(self, tmp_path: Path) -> None:
        assert resolve(env={}).pool_size == 5
        (tmp_path / "quacklake.toml").write_text("pool_size = 6")
        assert resolve(env={}).pool_size == 6
        env = {"QUACKLAKE_POOL_SIZE": "7"}
        assert resolve(env=env).pool_size == 7
        assert resolve({"pool_size": 8}, env=env).pool_size == 8

    def test_a_flag_of_none_and_an_empty_variable_count_as_not_given(self) -> None:
        config = resolve({"pool_size": None}, env={"QUACKLAKE_POOL_SIZE": ""})
        assert config.pool_size == 5
        assert source(config, "pool_size") == "default"

    def test_the_first_variable_that_is_set_counts(self) -> None:
        env = {"DUCKLAKE_CATALOG_URL": "sqlite:///b.db", "QUACKLAKE_URL": "sqlite:///a.db"}
        config = resolve(env=env)
        assert config.url == "sqlite:///a.db"
        assert source(config, "url") == "environment QUACKLAKE_URL"

    def test_the_process_environment_is_the_default(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DUCKLAKE_MAX_RETRY_COUNT", "12")
        assert resolve().ducklake_max_retry_count == 12

    @pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
    def test_every_variable_of_every_setting_is_read(self, setting) -> None:
        texts = {"duration": "2 s", "size": "2GB", "bool": "no", "stores": "{}"}
        text = setting.choices[-1] if setting.choices else texts.get(setting.kind, "2")
        for variable in setting.env:
            assert source(resolve(env={variable: text}), setting.name) == f"environment {variable}"

    def test_there_are_no_default_credentials(self) -> None:
        assert all(setting.default is None for setting in SETTINGS if setting.secret)

    def test_the_table_and_the_dataclass_name_the_same_settings(self) -> None:
        assert [each.name for each in fields(Config)] == ["sources", *(setting.name for setting in SETTINGS)]


class TestFile:
    def test_sections_are_flattened(self, tmp_path: Path) -> None:
        path = tmp_path / "other.toml"
        path.write_text('[s3]\nregion = "eu-west-1"\nsecure = false\n[duckdb]\nmemory_limit = "2GiB"')
        config = resolve(env={}, config_file=path)
        assert (config.s3_region, config.s3_secure, config.duckdb_memory_limit) == ("eu-west-1", False, 2 << 30)
        assert source(config, "s3_region") == f"file {path}"

    def test_the_environment_can_name_it(self, tmp_path: Path) -> None:
        (tmp_path / "named.toml").write_text("pool_size = 9")
        env = {"QUACKLAKE_CONFIG": str(tmp_path / "named.toml")}
        assert resolve(env=env).pool_size == 9
        (tmp_path / "quacklake.toml").write_text("pool_size = 3")
        assert resolve(env=env).pool_size == 3

    def test_an_unknown_key_names_what_was_meant(self, tmp_path: Path) -> None:
        (tmp_path / "quacklake.toml").write_text("[pool]\nsiez = 9")
        with pytest.raises(ConfigError, match="pool_siez") as caught:
            resolve(env={})
        assert '"pool_size"' in str(caught.value.hint)

    @pytest.mark.parametrize("content", [None, b"= 1", b"\xff\xfe"])
    def test_one_that_cannot_be_read_is_an_error(self, tmp_path: Path, content: bytes | None) -> None:
        path = tmp_path / "bad.toml"
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ConfigError, match=r"bad\.toml"):
            resolve(env={}, config_file=path)


class TestChecks:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("pool_size", 0),
            ("pool_size", "many"),
            ("pool_size", True),
            ("pool_size", 1.5),
            ("pool_size", 10**9),
            ("ducklake_retry_backoff", 0.5),
            ("ducklake_retry_backoff", "nan"),
            ("ducklake_retry_backoff", "inf"),
            ("s3_secure", "maybe"),
            ("catalog_type", "oracle"),
            ("orphan_grace", "soon"),
            ("orphan_grace", "-1s"),
            ("orphan_grace", "400 days"),
            ("duckdb_memory_limit", "lots"),
            ("duckdb_memory_limit", "1KB"),
            ("url", 5),
            ("log_format", "xml"),
        ],
    )
    def test_a_value_of_the_wrong_type_or_beyond_its_limits_is_refused(self, name: str, value: object) -> None:
        with pytest.raises(ConfigError, match=name):
            resolve({name: value}, env={})

    def test_an_unknown_flag_names_what_was_meant(self) -> None:
        with pytest.raises(ConfigError, match="did you mean"):
            resolve({"data_pth": "x"}, env={})

    def test_a_refused_secret_is_not_shown(self, tmp_path: Path) -> None:
        (tmp_path / "quacklake.toml").write_text("[s3]\nsecret_key = 12345678")
        with pytest.raises(ConfigError) as caught:
            resolve(env={})
        assert "12345678" not in str(caught.value)

    def test_the_result_cannot_be_changed(self) -> None:
        with pytest.raises(FrozenInstanceError):
            resolve(env={}).pool_size = 1  # type: ignore[misc]

    def test_the_result_travels_between_processes(self) -> None:
        config = resolve({"s3_secret_key": "hush"}, env={})
        assert pickle.loads(pickle.dumps(config)) == config


class TestDerivedUrl:
    @pytest.mark.parametrize(
        ("catalog_type", "path", "url"),
        [
            (None, "lake.db", "sqlite:///lake.db"),
            ("sqlite", "/var/lake.db", "sqlite:////var/lake.db"),
            ("duckdb", "lake.duckdb", "duckdb:///lake.duckdb"),
            ("postgres", "db.example/lake", "postgresql://db.example/lake"),
            ("postgresql", "host=h port=5 user=u dbname=d", "postgresql://u@h:5/d"),
            ("postgres", r"dbname=d password='a\'b c@/' user=u host=h", "postgresql://u:a%27b%20c%40%2F@h/d"),
            ("postgres", "postgresql://h/d", "postgresql://h/d"),
            ("mysql", "u:p@h/d", "mysql://u:p@h/d"),
        ],
    )
    def test_it_follows_from_type_and_path(self, catalog_type: str | None, path: str, url: str) -> None:
        assert resolve({"catalog_type": catalog_type, "catalog_path": path}, env={}).url == url

    def test_a_given_url_wins_over_a_path_from_the_same_or_a_weaker_place(self) -> None:
        env = {"QUACKLAKE_URL": "sqlite:///a.db", "DUCKLAKE_CATALOG_PATH": "b.db"}
        assert resolve(env=env).url == "sqlite:///a.db"

    def test_a_path_from_a_stronger_place_wins_over_a_url(self) -> None:
        config = resolve({"catalog_path": "b.db"}, env={"QUACKLAKE_URL": "sqlite:///a.db"})
        assert config.url == "sqlite:///b.db"
        assert source(config, "url") == "catalog_path (flag)"

    def test_a_broken_connection_string_is_refused_without_its_password(self) -> None:
        with pytest.raises(ConfigError) as caught:
            resolve({"catalog_type": "postgres", "catalog_path": "password=hush nonsense=1"}, env={})
        assert "hush" not in str(caught.value)

    def test_without_a_path_there_is_none(self) -> None:
        assert resolve({"catalog_type": "duckdb"}, env={}).url is None


class TestSecrets:
    def test_describe_and_repr_mask_them(self) -> None:
        flags = {"url": "postgresql://u:hush@h/d", "s3_secret_key": "hush", "catalog_path": "password=hush"}
        config = resolve(flags, env={})
        rows = {row.name: row for row in config.describe()}
        assert rows["s3_secret_key"] == ("s3_secret_key", "***", "flag")
        assert rows["url"].value == "postgresql://u:***@h/d"
        assert rows["s3_access_key"].value == ""
        assert [row.name for row in config.describe()] == [setting.name for setting in SETTINGS]
        assert "hush" not in repr(config) + str(config) + repr(config.describe())

    def test_they_reveal_themselves_on_request_only(self) -> None:
        secret = Secret("hush")
        assert (str(secret), repr(secret), f"{secret}", f"{[secret]}") == ("***", "***", "***", "[***]")
        assert secret.reveal() == "hush"
        assert secret == Secret("hush")
        assert secret != Secret("other")
        assert secret != "hush"
        assert len({secret, Secret("hush")}) == 1
        assert not Secret("")


MARK = "hunter2"
"""Part of every password below, and of no text around it."""
RAW = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=12)
WORDS = st.text(st.sampled_from("abc xyz.,-"), max_size=20)


class TestRedact:
    @given(before=WORDS, after=WORDS, password=RAW, scheme=st.sampled_from(["postgresql", "mysql+pymysql", "s3"]))
    def test_no_url_keeps_its_password(self, before: str, after: str, password: str, scheme: str) -> None:
        text = redact(f"{before} {scheme}://ann:{MARK}{password}{MARK}@db.example:5432/lake {after}")
        assert MARK not in text
        assert text.endswith(f"@db.example:5432/lake {after}")

    @given(password=st.text(max_size=20).filter(lambda text: "\n" not in text))
    def test_a_url_on_its_own_may_have_any_password(self, password: str) -> None:
        assert redact(f"postgresql://ann:{MARK}{password}{MARK}@h/d") == "postgresql://ann:***@h/d"

    @given(
        key=st.sampled_from(["password", "PGPASSWORD", "sslpassword", "pwd", "secret_access_key", "session_token"]),
        password=RAW.filter(lambda text: text[:1] not in ("'", '"') and "\\" not in text),
    )
    @example(key="password", password="***x")
    @example(key="password", password="a&b=c")
    def test_no_connection_string_keeps_its_password(self, key: str, password: str) -> None:
        assert redact(f"host=h {key}={password}{MARK} dbname=d") == f"host=h {key}=*** dbname=d"

    @given(password=st.text(max_size=20))
    def test_no_quotation_keeps_its_password(self, password: str) -> None:
        escaped = (MARK + password + MARK).replace("\\", "\\\\").replace("'", "\\'")
        assert redact(f"host=h password = '{escaped}' dbname=d") == "host=h password = *** dbname=d"

    @given(value=st.text(max_size=20), key=st.sampled_from(["password", "X-Amz-Signature", "secret_key", "api_key"]))
    def test_no_query_string_keeps_its_key(self, value: str, key: str) -> None:
        text = redact(f"https://h/p?a=1&{key}={quote(MARK + value, safe='')}&b=2")
        assert text == f"https://h/p?a=1&{key}=***&b=2"

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("CREATE SECRET (TYPE s3, KEY_ID 'k', SECRET 's')", "CREATE SECRET (TYPE s3, KEY_ID ***, SECRET ***)"),
            ("CREATE USER u IDENTIFIED BY 'pw'", "CREATE USER u IDENTIFIED BY ***"),
            ('{"password": "p\\"q", "user": "u"}', '{"password": ***, "user": "u"}'),
            ("{'s3_secret_key': 'x'}", "{'s3_secret_key': ***}"),
            ("AWS_ACCESS_KEY_ID=AKIA next", "AWS_ACCESS_KEY_ID=*** next"),
        ],
    )
    def test_other_forms_are_known(self, text: str, expected: str) -> None:
        assert redact(text) == expected

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "sqlite:///lake.db",
            "s3://bucket/path/file.parquet",
            "http://127.0.0.1:9000/bucket",
            "postgresql://ann@db:5432/lake?sslmode=require",
            "unexpected token: SELECT",
            "mail ann@example.org",
        ],
    )
    def test_a_text_without_secrets_stays_as_it_is(self, text: str) -> None:
        assert redact(text) == text

    @given(text=st.text(st.sampled_from("password=:/@?&' \"\\secret*x\n"), max_size=60))
    def test_redacting_twice_changes_nothing_more(self, text: str) -> None:
        assert redact(redact(text)) == redact(text)


class TestSizes:
    @pytest.mark.parametrize(
        ("text", "size"),
        [("0", 0), ("17", 17), ("1k", 1000), ("512MB", 512 * 10**6), (" 1.5 GiB ", 3 << 29), ("2 bytes", 2), (9, 9)],
    )
    def test_are_parsed(self, text: object, size: int) -> None:
        assert parse_size(text) == size

    @pytest.mark.parametrize("text", ["", "MB", "-1", "1XB", "1 2", "1.MB", -1, True, None, 1.5])
    def test_nonsense_is_refused(self, text: object) -> None:
        with pytest.raises(ValueError, match="size"):
            parse_size(text)

    @given(st.integers(0, 2**60), st.sampled_from([("", 1), ("kB", 1000), ("MiB", 1 << 20), ("TB", 10**12)]))
    def test_whole_numbers_are_exact(self, number: int, unit: tuple[str, int]) -> None:
        assert parse_size(f"{number} {unit[0]}") == number * unit[1]


class TestDurations:
    @pytest.mark.parametrize(
        ("text", "seconds"),
        [("30s", 30), ("10 minutes", 600), ("1h30m", 5400), ("250ms", 0.25), ("2 weeks 1 day", 1296000), ("5", 5)],
    )
    def test_are_parsed(self, text: str, seconds: float) -> None:
        assert parse_duration(text) == timedelta(seconds=seconds)

    def test_numbers_are_seconds_and_timedeltas_stay(self) -> None:
        assert parse_duration(1.5) == timedelta(seconds=1.5)
        assert parse_duration(timedelta(days=1)) == timedelta(days=1)

    @pytest.mark.parametrize("text", ["", "s", "-1s", -1, "1 fortnight", "1h 30", "9999999999 weeks", True, None])
    def test_nonsense_is_refused(self, text: object) -> None:
        with pytest.raises(ValueError, match="duration"):
            parse_duration(text)


class TestNames:
    def test_every_setting_is_used_by_something(self) -> None:
        package = Path(quacklake.__file__).parent
        code = (
            "\n".join(path.read_text() for path in package.rglob("*.py") if path.parent != package / "config")
            + (package / "config" / "resolver.py").read_text().partition("def resolve(")[2]
        )
        assert [each.name for each in SETTINGS if not re.search(rf"\.{each.name}\b|\"{each.name}\"", code)] == []

    def test_a_misspelt_variable_is_told_with_what_is_meant(self) -> None:
        env = {"QUACKLAKE_URL": "x", "QUACKLAKE_DATAPATH": "y", "QUACKLAKE_ZZZ": "z", "PATH": "/bin"}
        assert unknown_variables(env) == {
            "QUACKLAKE_DATAPATH": 'did you mean "QUACKLAKE_DATA_PATH"?',
            "QUACKLAKE_ZZZ": None,
        }

    def test_variables_of_tests_are_not_taken_for_settings(self) -> None:
        assert (
            unknown_variables(dict.fromkeys(("QUACKLAKE_TEST_SEED", "QUACKLAKE_FAULT", "QUACKLAKE_CONFIG"), "1")) == {}
        )

    def test_a_misspelt_variable_is_logged_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("QUACKLAKE_POL_SIZE", "7")
        monkeypatch.setattr(resolver, "TOLD", set())
        with collect_messages() as messages:
            for _ in range(2):
                resolve()
        assert messages == [
            'the variable QUACKLAKE_POL_SIZE is not a setting and has no effect: did you mean "QUACKLAKE_POOL_SIZE"?'
        ]

    def test_an_unknown_key_of_a_file_is_an_error_with_what_is_meant(self, tmp_path: Path) -> None:
        for text in ("pol_size = 7", "[s3]\nacces_key = 'x'"):
            (tmp_path / "q.toml").write_text(text)
            with pytest.raises(ConfigError) as raised:
                resolve(env={}, config_file=tmp_path / "q.toml")
            assert (raised.value.hint or "").startswith("did you mean")


class TestSectionOfAProduct:
    def test_a_flag_wins_over_the_environment_and_that_over_the_table_of_the_file(self) -> None:
        Path("quacklake.toml").write_text("""
            url = "sqlite:///lake.db"
            [service]
            max_rows = 7
            max_body = "2MiB"
            statement_seconds = "2 minutes"
            cors_origins = ["https://a.example", "https://b.example"]
        """)
        env = {"QUACKLAKE_SERVICE_MAX_ROWS": "8", "QUACKLAKE_SERVICE_MAX_BODY": "3MiB", "QUACKLAKE_MAX_ROWS": "1"}
        found = resolve_section(ServeSettings, "service", {"max_rows": "9", "port": None}, env=env)
        assert (found.max_rows, found.max_body, found.statement_seconds) == (9, 3 << 20, 120.0)
        assert (found.cors_origins, found.port, found.web) == (("https://a.example", "https://b.example"), 8080, True)
        assert resolve(env={}).url == "sqlite:///lake.db"

    @pytest.mark.parametrize(
        ("name", "value", "reason"),
        [
            ("max_rwos", "1", 'did you mean "max_rows"'),
            ("max_rows", "0", "at least 1"),
            ("max_rows", "many", "whole number"),
            ("port", "65536", "at most 65,535"),
            ("statement_seconds", "soon", "duration"),
            ("anonymous", "owner", "one of: reader"),
        ],
    )
    def test_a_wrong_setting_is_refused_wherever_it_is(self, name: str, value: str, reason: str) -> None:
        Path("quacklake.toml").write_text(f"[service]\n{name} = {value!r}\n")
        for flags in ({name: value}, {}):
            with pytest.raises(ConfigError) as refused:
                resolve_section(ServeSettings, "service", flags, env={})
            assert reason in f"{refused.value.message} {refused.value.hint}" and name in refused.value.message

    def test_a_section_that_is_no_table_is_refused(self) -> None:
        Path("quacklake.toml").write_text("service = 7\n")
        with pytest.raises(ConfigError, match="service is a table"):
            resolve_section(ServeSettings, "service", env={})

    def test_a_misspelt_variable_of_a_section_is_reported_by_the_section_alone(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(resolver, "TOLD", set())
        monkeypatch.setenv("QUACKLAKE_SERVICE_MAX_RWOS", "1")
        assert unknown_variables({"QUACKLAKE_SERVICE_MAX_RWOS": "1"}) == {}
        with collect_messages() as messages:
            resolve()
            assert messages == []
            resolve_section(ServeSettings, "service")
        assert [message.partition(": ")[2] for message in messages] == ['did you mean "QUACKLAKE_SERVICE_MAX_ROWS"?']
