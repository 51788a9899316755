"""The demo: a story about one lake, in which every number is read from the lake."""

from quacklake.cli.demo.story import tell

__all__ = ["tell"]
