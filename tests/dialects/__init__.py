"""The exact request body for each generation on each engine, kept as files. See matrix.py."""
