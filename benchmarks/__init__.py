"""Measurements of gammafl, compared with its peers and with the machine's limits. The package imports none of them."""
