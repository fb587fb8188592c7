"""A run's configuration: what may be set (schema), from which layers it comes, and what was wrong with it."""
