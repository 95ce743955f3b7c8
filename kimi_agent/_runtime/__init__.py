"""What the package does: network, clock, threads."""
