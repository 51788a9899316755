"""Access control: principals, roles, grants, row filters, masks and tokens, and a lake as one principal may use it."""

from quacklake.core.access.lake_access import LakeAccess
from quacklake.core.access.principal import PrincipalHandle
from quacklake.core.access.rules import PrincipalRules
from quacklake.core.access.tokens import TenantTokens, TenantUser, Tokens

__all__ = ["LakeAccess", "PrincipalHandle", "PrincipalRules", "TenantTokens", "TenantUser", "Tokens"]
