"""The optimal-control problems: their stages, terms, formulations and settings."""
