"""With ``--output json``, every command prints JSON and nothing else."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pyarrow as pa

from tests.cli.conftest import Run
from tests.cli.names import command_names
from tests.connectors.adoption import HandMade, field

STORY = """
    init
    append people people.csv --create
    merge people people.csv --on id
    add-files people data/arrived.parquet
    adopt delta:foreign/t adopted --dry-run
    adopt delta:foreign/t adopted
    tables
    info
    describe people
    show people
    head people
    scan people
    files people
    export people out.parquet
    export people parquet:out --dry-run
    export people parquet:out
    import parquet:out --schema back --dry-run
    import parquet:out --schema back
    snapshots
    history people
    changes people --since 1
    diff 1
    diff 0 1 --table people
    bisect "SELECT count(*) = 0 FROM people"
    revert 1 --dry-run
    revert 1 --on-conflict ours --yes
    sql "SELECT count(*) FROM people"
    sql "SELECT * FROM people WHERE false"
    sql "DELETE FROM people WHERE id = 1"
    sql "CREATE TABLE gone (i INTEGER)"
    sql "DROP TABLE gone"
    undrop gone
    views create names "SELECT name, count(*) AS n FROM people GROUP BY name"
    views list
    views describe names
    views explain names
    views refresh
    views verify names
    views drop names
    access create ann --role reader
    access token ann --expires-in 1d
    access tokens
    access users
    access grants
    access drop ann
    alter add-column people level INTEGER
    alter widen-column people level BIGINT
    alter rename-column people level rank
    alter drop-column people rank --dry-run
    alter drop-column people rank
    alter comment people "who they are"
    alter partition people "bucket(4, id)"
    alter sort people id
    alter option data_inlining_row_limit
    alter option data_inlining_row_limit 5
    alter rename gone here
    tag
    tag first --at 1
    tag first --delete --dry-run
    tag first --delete
    restore people --to 2 --dry-run
    restore people --to 2
    rollback --to 3 --dry-run
    rollback --to 3 --yes
    compact people
    maintain --dry-run
    maintain
    backup saved
    backups saved
    restore-backup saved --lake sqlite:///restored.db --data-path restored
    prune-backups saved --keep-last 1 --dry-run
    prune-backups saved --keep-last 1
    expire --keep-last 2 --dry-run
    expire --keep-last 2
    cleanup --dry-run
    cleanup --yes
    verify
    migrate
    pipeline apply copy.yaml
    pipeline list
    pipeline explain copy
    pipeline run copy --until-caught-up
    pipeline status
    pipeline drop copy
    config show
    config set pool_size 7
    config get pool_size
    config unset pool_size
    spark-settings
    doctor
    tenant create acme beta --lake sqlite:///shared.db --data-path shared
    tenant list --lake sqlite:///shared.db
    tenant show acme --lake sqlite:///shared.db
    tenant stats --lake sqlite:///shared.db
    tenant limit acme --tables 5 --lake sqlite:///shared.db
    tenant limits acme --lake sqlite:///shared.db
    tenant maintain --dry-run --lake sqlite:///shared.db
    tenant maintain --lake sqlite:///shared.db
    tenant fork acme other --lake sqlite:///shared.db
    tenant rename other another --lake sqlite:///shared.db
    tenant export acme sqlite:///plain.db --lake sqlite:///shared.db
    tenant adopt sqlite:///plain.db again --lake sqlite:///shared.db
    tenant release acme sqlite:///plain.db --lake sqlite:///shared.db
    init --lake sqlite:///former.db --data-path former
    tenant convert acme --lake sqlite:///former.db --data-path converted --yes
    tenant drop beta --lake sqlite:///shared.db
    tenant purge --yes --lake sqlite:///shared.db
"""
ELSEWHERE = {
    *("serve", "access revoke-token"),
    *("pipeline start", "pipeline stop", "pipeline logs"),
    *("tenant grant", "tenant revoke", "tenant expose", "tenant unexpose"),
}
"""Commands that are tested elsewhere: another process, an id, PostgreSQL."""


def test_every_command_answers_in_json(run: Run, elsewhere: Path) -> None:
    Path("people.csv").write_text("id,name\n1,Ann\n2,Bob\n", encoding="utf-8")
    told: dict[str, object] = {}
    failed: list[tuple[str, int, str]] = []
    Path("copy.yaml").write_text("source: {type: lake, table: people}\nsinks: [{type: lake, table: copied}]\n")
    for line in STORY.strip().splitlines():
        words = shlex.split(line)
        if words[0] == "add-files":
            Path("data").mkdir(exist_ok=True)
            run("sql", "COPY (SELECT 9::BIGINT AS id, 'Ida' AS name) TO 'data/arrived.parquet'")
        if words[-1] == "--dry-run" and words[0] == "adopt":
            table = HandMade(elsewhere / "foreign" / "t", [field("id", "long")])
            table.commit(table.file("f.parquet", pa.table({"id": [1, 2]})))
            run("config", "set", "foreign_paths", "foreign")
        answer = run(*words, "--output", "json")
        if (answer.code, answer.err) != (0, ""):
            failed.append((line.strip(), answer.code, answer.err))
        else:
            told[line.strip()] = json.loads(answer.out)
    assert failed == []
    assert told['sql "SELECT count(*) FROM people"'] == [{"count_star()": 3}]
    known = set(command_names())
    assert {name for name in known if any(f"{line} ".startswith(f"{name} ") for line in told)} == known - ELSEWHERE
