"""Real servers for development, tests and benchmarks: PostgreSQL, MariaDB and S3.

Each server listens on 127.0.0.1 only, on a free port, keeps its files in a temporary directory and ends with the
process that started it::

    with PostgresServer() as server:
        url = server.create_database("lake")

``python -m services start`` starts the same servers in the background.
"""

from services.mysql import MySQLServer
from services.postgres import PostgresServer
from services.process import Server, Unavailable
from services.s3 import S3Server

__all__ = ["SERVERS", "MySQLServer", "PostgresServer", "S3Server", "Server", "Unavailable"]

SERVERS: dict[str, type[Server]] = {"postgres": PostgresServer, "mysql": MySQLServer, "s3": S3Server}
