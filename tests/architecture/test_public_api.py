"""What users type stays as it is unless a change of it is meant."""

from __future__ import annotations

import subprocess
import sys

import kimi_agent
from tests.architecture.public_api import SNAPSHOT, snapshot


def test_the_public_names_are_the_recorded_ones() -> None:
    assert snapshot() == SNAPSHOT.read_text("utf-8"), (
        "the public API changed; if that is meant, run: python -m tests.architecture.public_api"
    )


def test_every_name_of_the_package_can_be_imported_from_it() -> None:
    for name in kimi_agent.__all__:
        assert getattr(kimi_agent, name) is not None

    assert set(kimi_agent.__all__) <= set(dir(kimi_agent))


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    assert not hasattr(kimi_agent, "KimiAgnet")


def test_importing_the_package_loads_nothing_but_itself() -> None:
    program = (
        "import sys; before = set(sys.modules); import kimi_agent; "
        "print(*sorted(name for name in set(sys.modules) - before "
        "if name.partition('.')[0] not in sys.stdlib_module_names))"
    )
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", program], capture_output=True, check=True, encoding="utf-8", timeout=60
    )

    assert done.stdout.split() == ["kimi_agent", "kimi_agent._version"]


def test_describing_an_agent_does_not_load_the_openai_client() -> None:
    program = (
        "import sys; from kimi_agent import KimiAgent; "
        "KimiAgent('kimi-k2', base_url='http://127.0.0.1:9/v1'); print('openai' in sys.modules)"
    )
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", program], capture_output=True, check=True, encoding="utf-8", timeout=60
    )

    assert done.stdout.strip() == "False"
