"""The whole demo: blocks through NATS and Spark into a lake, Delta and Iceberg; sensors into a pond; and a kill.

``python -m services.demo`` runs it; ``make demo`` does.
"""
