"""Data sets: their sources and their readers."""
