"""Rows of people as Arrow: frames, dataclasses, dictionaries, and files of any format."""
