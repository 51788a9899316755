"""The demos of Quacklake: a story about a lake, a pond of simulated sensors, and a service with sample data."""
