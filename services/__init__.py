"""Real servers for development, tests and benchmarks: PostgreSQL, MariaDB, S3, NATS, Kafka, catalogs of Iceberg, Spark,
and simulators of what a pond collects from.

Each server listens on 127.0.0.1 only, on a free port, keeps its files in a temporary directory and ends with the
process that started it::

    with PostgresServer() as server, server.new_database() as url:
        ...

``python -m services start`` starts them in the background; the larger ones only when it is told their names.
"""

from services.database import DatabaseServer
from services.iceberg import HiveServer, IcebergRestServer
from services.kafka import KafkaServer
from services.mysql import MySQLServer
from services.nats import NatsServer
from services.postgres import PostgresServer
from services.process import Server, Unavailable
from services.s3 import MotoServer, S3Server
from services.simulators import HydroVuServer, LakeTechServer
from services.spark import SparkCluster, SparkConnectServer

__all__ = [
    "SERVERS",
    "USUAL",
    "DatabaseServer",
    "HiveServer",
    "HydroVuServer",
    "IcebergRestServer",
    "KafkaServer",
    "LakeTechServer",
    "MotoServer",
    "MySQLServer",
    "NatsServer",
    "PostgresServer",
    "S3Server",
    "Server",
    "SparkCluster",
    "SparkConnectServer",
    "Unavailable",
]

SERVERS: dict[str, type[Server]] = {
    each.name: each
    for each in (
        PostgresServer,
        MySQLServer,
        S3Server,
        MotoServer,
        NatsServer,
        KafkaServer,
        IcebergRestServer,
        HiveServer,
        SparkCluster,
        SparkConnectServer,
        HydroVuServer,
        LakeTechServer,
    )
}
USUAL = ("postgres", "mysql", "s3")
"""Fast and small services, which start when no name is given."""
