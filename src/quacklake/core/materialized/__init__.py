"""Materialized views: tables that hold the answer of a query, refreshed from the changes of the tables it reads."""
