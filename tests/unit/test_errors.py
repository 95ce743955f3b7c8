"""Every error, by who has to act."""

from __future__ import annotations

import inspect
import pickle

import pytest

from kimi_agent import errors
from kimi_agent.errors import (
    ConfigurationError,
    ContextTooLongError,
    IncompleteStreamError,
    KimiAgentError,
    LimitError,
    ModelError,
    ModelNotFoundError,
    ProtocolError,
    StepLimitError,
    TransportError,
    TransportStatusError,
)

ALL = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, KimiAgentError) and kind.__module__ == errors.__name__
]


def made(kind: type[KimiAgentError]) -> KimiAgentError:
    if issubclass(kind, TransportStatusError):
        return kind("told", status_code=418, error_type="odd", server_message="told", retry_after_s=2.0)
    return kind("told")


def test_each_party_that_has_to_act_has_one_child_of_the_root() -> None:
    assert {kind for kind in ALL if kind.__base__ is KimiAgentError} == {
        *(ConfigurationError, TransportError, ProtocolError, ModelError, LimitError)
    }


@pytest.mark.parametrize("kind", ALL)
def test_an_error_survives_pickling_with_all_it_holds(kind: type[KimiAgentError]) -> None:
    error = made(kind)
    error.partial_text = "It is "
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - made here

    assert copy.__class__ is kind
    assert str(copy) == "told"
    assert copy.__dict__ == error.__dict__
    assert copy.partial_text == "It is "


@pytest.mark.parametrize("kind", ALL)
def test_an_error_is_named_and_says_whose_it_is(kind: type[KimiAgentError]) -> None:
    assert kind.__name__.endswith("Error")
    assert kind.__doc__
    assert made(kind).result is None
    assert made(kind).partial_text == ""


def test_errors_have_fields_to_branch_on() -> None:
    error = ContextTooLongError("long", status_code=400, retryable=False, request_id="x")

    assert (error.status_code, error.request_id, error.limit_tokens) == (400, "x", None)
    assert ModelNotFoundError("", status_code=404).available == ()
    assert IncompleteStreamError("", raw="x").raw == "x"
    assert IncompleteStreamError("").retryable
    assert not ModelError("").retryable
    assert isinstance(StepLimitError(""), LimitError)
