"""Algorithm 1 without transport and without torch: clients, server, rounds, and the ports Task and Carrier."""
