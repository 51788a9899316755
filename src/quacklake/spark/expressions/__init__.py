"""Translate expressions of the lake into Spark SQL with the same values.

======================  =========================================================================
module                  contents
======================  =========================================================================
:mod:`.translator`      the translator: from DuckDB's tree of an expression to Spark SQL
:mod:`.functions`       functions and operators, by DuckDB's names
:mod:`.texts`           text functions
:mod:`.times`           date and time functions
:mod:`.function_calls`  one call of a function
:mod:`.casts`           casts, and the kinds of types
======================  =========================================================================
"""
