"""Access control: principals, roles, grants, row filters, masks and tokens, and a lake as one principal may use it."""

from quacklake.access.lake_access import LakeAccess
from quacklake.access.principal import PrincipalHandle
from quacklake.access.rules import PrincipalRules
from quacklake.access.tokens import TenantTokens, TenantUser, Tokens

__all__ = ["LakeAccess", "PrincipalHandle", "PrincipalRules", "TenantTokens", "TenantUser", "Tokens"]
