"""Methods by name: one file a family, and the registry that knows them and those that others bring."""
