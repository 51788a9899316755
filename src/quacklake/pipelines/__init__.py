"""Pipelines: from sources through queries into sinks, and a writer for programs without Spark."""

from quacklake.pipelines.buffered_writer import BufferedWriter
from quacklake.pipelines.definition import PipelineDefinition
from quacklake.pipelines.pipeline import Pipeline
from quacklake.pipelines.reports import BatchReport, RunReport

__all__ = ["BatchReport", "BufferedWriter", "Pipeline", "PipelineDefinition", "RunReport"]
