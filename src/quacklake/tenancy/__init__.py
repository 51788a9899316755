"""Many catalogs (tenants) in one metadata database: who they are, who may use them, what they may take."""
