"""What every test runs under: a clean environment, both event loops, a hypothesis profile."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

# Settings of the person who runs the tests; KIMI_TEST_… are for the tests themselves.
SETTINGS = ("KIMI_", "MOONSHOT_", "OPENAI_")
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")

settings.register_profile("default", max_examples=100, deadline=None)
settings.register_profile(
    "nightly", max_examples=20_000, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def pytest_configure(config: pytest.Config) -> None:
    """Long property runs for `-m nightly`, short ones else."""
    wanted = str(config.getoption("markexpr", default=""))
    is_nightly = "nightly" in wanted and "not nightly" not in wanted
    settings.load_profile("nightly" if is_nightly else "default")


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The event loop of an async test: each runs on both."""
    backend: str = request.param
    return backend


@pytest.fixture(scope="session", autouse=True)
def clean_environment() -> Iterator[None]:
    """No test reads, or sends anything to, the server that the person running it has configured."""
    with pytest.MonkeyPatch.context() as environment:
        for name in list(os.environ):
            is_setting = name.startswith(SETTINGS) and not name.startswith("KIMI_TEST_")
            if is_setting or name.upper() in PROXIES:
                environment.delenv(name)
        yield
