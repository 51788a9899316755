"""Shared lakes: many catalogs (tenants) in one metadata database, with their access rights and limits."""
