"""Grids of runs, what they come to, verdicts, and their pages."""
