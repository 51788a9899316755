"""Access control: principals, roles, grants, row filters, masks and tokens."""

from quacklake.core.access.lake_access import LakeAccess
from quacklake.core.access.rules import PrincipalRules
from quacklake.core.access.tokens import TenantTokens, TenantUser, Tokens

__all__ = ["LakeAccess", "PrincipalRules", "TenantTokens", "TenantUser", "Tokens"]
