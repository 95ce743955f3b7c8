"""The version of the distribution, read by the build and by `kimi_agent.__version__`."""

__version__ = "0.1.0"
