"""The agent on real engines. See README.md."""
