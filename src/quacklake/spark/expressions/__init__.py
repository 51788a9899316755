"""Expressions of the lake in the SQL of Spark, with the same values.

===================  ============================================================================
module               what it holds
===================  ============================================================================
:mod:`.translator`   the translator: from DuckDB's tree of an expression to Spark's text
:mod:`.functions`    functions and operators, by DuckDB's names
:mod:`.texts`        functions of texts
:mod:`.times`        functions of dates and times
:mod:`.calls`        one call of a function
:mod:`.casts`        casts, and the kinds of types
===================  ============================================================================
"""
