"""Serves one GGUF model with llama.cpp until its standard input closes; a program of its own.

A native crash or native logging then stays out of the tests. The first line of standard output is a JSON
object: `base_url` once the model is loaded, or `import_error` if llama.cpp is not installed. Everything that
llama.cpp prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from typing import Any


def main(model_path: str) -> None:
    """Serve the model at `model_path` on a free port of 127.0.0.1."""
    report_to = os.dup(1)
    os.dup2(2, 1)  # what the native code prints must not be taken for the report
    try:
        llama_cpp: Any = import_module("xllamacpp")
    except ImportError as error:
        _report(report_to, {"import_error": str(error)})
        return
    server = llama_cpp.Server(_parameters(llama_cpp, model_path))  # returns when the model is loaded
    _report(report_to, {"base_url": f"{server.listening_address}/v1"})
    sys.stdin.read()


def _parameters(llama_cpp: Any, model_path: str) -> Any:
    parameters = llama_cpp.CommonParams()
    parameters.model.path = model_path
    parameters.model_alias = {"kimi-k2"}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.n_ctx = 2048
    parameters.n_parallel = 1
    parameters.use_jinja = True
    parameters.warmup = False
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    return parameters


def _report(descriptor: int, fields: dict[str, str]) -> None:
    os.write(descriptor, (json.dumps(fields) + "\n").encode())


if __name__ == "__main__":
    main(sys.argv[1])
