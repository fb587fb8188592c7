"""Methods by name: one file per family, and the registry of these methods and of those from other packages."""
