"""Algorithm 1 without transport and without torch: clients, server, rounds, and the protocols Task and Carrier."""
