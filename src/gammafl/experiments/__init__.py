"""Grids of runs, their results, the verdicts on claims, and the pages that show them."""
