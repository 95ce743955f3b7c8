"""Where the server is and with which key: arguments first, then the environment."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from kimi_agent.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

_BASE_URLS: Final = ("KIMI_BASE_URL", "MOONSHOT_BASE_URL", "OPENAI_BASE_URL")
_API_KEYS: Final = ("KIMI_API_KEY", "MOONSHOT_API_KEY", "OPENAI_API_KEY")
_NO_KEY: Final = "none"


@dataclass(frozen=True, slots=True)
class Connection:
    """A server's address and the key to it."""

    base_url: str
    api_key: str = field(repr=False)


def connection(
    base_url: str | None, api_key: str | None, *, environment: Mapping[str, str] | None = None
) -> Connection:
    """The connection that the arguments and the environment name.

    Raises:
        ConfigurationError: there is no address, it is no URL, or a key is missing.
    """
    known = os.environ if environment is None else environment
    url = base_url or _first(known, _BASE_URLS)
    if url is None:
        raise ConfigurationError(
            "no server is named: pass base_url=, or set KIMI_BASE_URL, e.g. to http://127.0.0.1:8000/v1 "
            "(`kimi-agent simulate --port 8000` starts one to try things out)"
        )
    host = _host_of(url)
    key = api_key or _first(known, _API_KEYS)
    if key is None:
        if not _is_loopback(host):
            raise ConfigurationError(
                f"no API key for {host}: pass api_key= or set KIMI_API_KEY (any word, if that server "
                "wants none)"
            )
        key = _NO_KEY
    return Connection(base_url=url, api_key=key)


def model_from_environment() -> str | None:
    """The model named by `KIMI_MODEL`, if any."""
    return os.environ.get("KIMI_MODEL") or None


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((environment[name] for name in names if environment.get(name)), None)


def _host_of(url: str) -> str:
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        parts, host = None, None
    if parts is None or parts.scheme not in ("http", "https") or not host:
        raise ConfigurationError(
            f"base_url {_shown(url)!r} is not a URL like http://127.0.0.1:8000/v1 or https://api.moonshot.ai/v1"
        )
    return host


def _shown(url: str) -> str:
    """`url` without the user and password it may hold."""
    return re.sub(r"//[^/@]*@", "//", url)


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    # "Any address of this machine", as servers print it, is reached on loopback.
    return address.is_loopback or address.is_unspecified
