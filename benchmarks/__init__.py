"""Measurements side by side with peers and with the machine's limits. The package imports none of them."""
