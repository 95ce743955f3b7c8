"""A real model on this machine: llama.cpp serves a GGUF file, an agent uses it over HTTP.

    python3 -m pip --python .venv install xllamacpp
    python examples/local_llama_cpp.py path/to/kimi.gguf        # or set KIMI_GGUF

Any model with Kimi's chat template will do. The repository has a tiny one that knows little but weather,
tests/engines/models/tiny-kimi.gguf.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import anyio

from kimi_agent import KimiAgent, ModelOptions, ToolFinished, ToolStarted, tool

USAGE = "Name a GGUF model: python examples/local_llama_cpp.py MODEL.gguf, or set KIMI_GGUF."


@tool
async def get_weather(city: str) -> dict[str, str | int]:
    """Current weather of a city.

    Args:
        city: City name, in English.
    """
    return {"city": city, "temperature": 21}


def model_file() -> Path:
    """The model named on the command line, else by KIMI_GGUF; the program ends if there is none."""
    named = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("KIMI_GGUF")
    if not named:
        sys.exit(USAGE)
    path = Path(named)
    if not path.is_file():
        sys.exit(f"There is no model file at {path}. {USAGE}")
    return path


def serve(path: Path) -> Any:
    """A llama.cpp server for the model, on a free port; it ends with the object."""
    try:
        xllamacpp = import_module("xllamacpp")
    except ModuleNotFoundError:
        sys.exit(
            "This example needs llama.cpp's Python package: python3 -m pip --python .venv install xllamacpp"
        )
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.model_alias = {"kimi-local"}
    parameters.hostnames, parameters.port = ["127.0.0.1"], 0
    parameters.n_ctx, parameters.n_parallel = 2048, 1
    parameters.use_jinja, parameters.warmup, parameters.verbosity = True, False, -1
    return xllamacpp.Server(parameters)


async def main() -> None:
    """Ask for the weather in two cities."""
    server = serve(model_file())
    base_url = f"{server.listening_address}/v1"
    print(f"llama.cpp serves {base_url}")
    options = ModelOptions(temperature=0, max_output_tokens=256)
    async with (
        KimiAgent("kimi-local", tools=[get_weather], base_url=base_url, options=options) as agent,
        agent.stream("What is the weather in Paris and Tokyo?") as run,
    ):
        async for event in run:
            match event:
                case ToolStarted(call=call):
                    print(f"tool_call   {call.name} {call.arguments}")
                case ToolFinished(result=result):
                    print(f"tool_result {result}")
                case _:
                    pass
    print(f"answer      {run.result.text}")


if __name__ == "__main__":
    anyio.run(main)
