"""The `kimi-agent` command."""
