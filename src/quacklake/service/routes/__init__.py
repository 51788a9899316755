"""The routes of the HTTP API, a module for each topic."""
