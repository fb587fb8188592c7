"""Vectors ↔ messages: the mathematics. No torch, no files."""
