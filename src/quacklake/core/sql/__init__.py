"""SQL over lakes: sessions and the statements they run."""

__all__: list[str] = []
