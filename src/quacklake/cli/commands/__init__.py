"""The commands, one module each."""

from quacklake.cli.commands.add_files import ADD_FILES
from quacklake.cli.commands.append import APPEND
from quacklake.cli.commands.backup import BACKUP, BACKUPS, PRUNE_BACKUPS, RESTORE_BACKUP
from quacklake.cli.commands.changes import CHANGES
from quacklake.cli.commands.command import Command
from quacklake.cli.commands.compact import COMPACT
from quacklake.cli.commands.demo import DEMO
from quacklake.cli.commands.expire import CLEANUP, EXPIRE
from quacklake.cli.commands.files import FILES
from quacklake.cli.commands.history import HISTORY
from quacklake.cli.commands.info import INFO
from quacklake.cli.commands.maintain import MAINTAIN
from quacklake.cli.commands.migrate import MIGRATE
from quacklake.cli.commands.settings import SETTINGS
from quacklake.cli.commands.show import SHOW
from quacklake.cli.commands.snapshots import SNAPSHOTS
from quacklake.cli.commands.tables import TABLES
from quacklake.cli.commands.tag import TAG
from quacklake.cli.commands.undo import RESTORE, ROLLBACK, UNDROP
from quacklake.cli.commands.verify import VERIFY

__all__ = ["COMMANDS", "Command"]

COMMANDS: tuple[Command, ...] = (
    DEMO,
    INFO,
    TABLES,
    SHOW,
    SNAPSHOTS,
    FILES,
    HISTORY,
    CHANGES,
    APPEND,
    ADD_FILES,
    RESTORE,
    UNDROP,
    ROLLBACK,
    TAG,
    COMPACT,
    EXPIRE,
    CLEANUP,
    MAINTAIN,
    MIGRATE,
    VERIFY,
    BACKUP,
    BACKUPS,
    PRUNE_BACKUPS,
    RESTORE_BACKUP,
    SETTINGS,
)
"""Every command, in the order in which help lists them."""
