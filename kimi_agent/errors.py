"""Every error of the package, arranged by who has to act."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def _rebuild(cls: type[KimiAgentError], args: tuple[object, ...], state: dict[str, Any]) -> KimiAgentError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


class KimiAgentError(Exception):
    """Anything this package raises by itself."""

    result: Any = None
    """The `RunResult` of what was done before the error, where a run was under way; else `None`.

    Its `messages` are a valid `history`.
    """

    partial_text: str = ""
    """Answer text of the failed reply that had arrived before the error."""

    def __init__(self, message: str) -> None:
        super().__init__(message)

    def __reduce__(
        self,
    ) -> tuple[
        Callable[..., KimiAgentError], tuple[type[KimiAgentError], tuple[object, ...], dict[str, Any]]
    ]:
        return _rebuild, (type(self), self.args, dict(self.__dict__))


# --- the caller: fix the code --------------------------------------------------------------------


class ConfigurationError(KimiAgentError):
    """The call cannot work as written; raised before any request is sent."""


class ToolDefinitionError(ConfigurationError):
    """A function or value cannot be offered to the model as a tool."""


class InvalidHistoryError(ConfigurationError):
    """`history` breaks a rule of Chat Completions that cannot be put right on the way out."""


# --- the network or the server -------------------------------------------------------------------


class TransportError(KimiAgentError):
    """The request could not be carried out."""

    retryable: bool = False
    """True if the same request may succeed later."""

    request_id: str | None = None
    """The server's trace or request id, for its operator."""

    retry_after_s: float | None = None
    """Seconds the server asked to wait, if it said so."""


class TransportConnectionError(TransportError):
    """No connection, or it was lost."""

    retryable = True


class TransportTimeoutError(TransportError):
    """The server took longer than `RunLimits.request_timeout_s`."""

    retryable = True


class TransportStatusError(TransportError):
    """The server answered with an error: an HTTP status, or an error object in a reply of status 200."""

    def __init__(
        self,
        message: str,
        *,
        status_code: int,
        error_type: str | None = None,
        server_message: str = "",
        retryable: bool = False,
        retry_after_s: float | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status_code = status_code
        self.error_type = error_type
        """The server's own word for the error, e.g. `engine_overloaded_error`."""
        self.server_message = server_message
        """The server's own sentence, unchanged."""
        self.retryable = retryable
        self.retry_after_s = retry_after_s
        self.request_id = request_id


class RateLimitedError(TransportStatusError):
    """Too many requests for this account; again later."""


class EngineOverloadedError(TransportStatusError):
    """The server has more work than it can take; again later, with long waits."""


class ServerLoadingError(TransportStatusError):
    """The server is up, but the model is not loaded yet; it is waited for."""


class QuotaExhaustedError(TransportStatusError):
    """The account has no money or no quota left; asking again is useless."""


class AuthenticationError(TransportStatusError):
    """The API key is missing, wrong, or of another region."""


class AccessDeniedError(TransportStatusError):
    """The key is known, but may not do this."""


class ModelNotFoundError(TransportStatusError):
    """The server does not have the model."""

    available: tuple[str, ...] = ()
    """The model ids the server has, if it told them."""

    suggestion: str | None = None
    """The id that was probably meant."""


class InvalidRequestError(TransportStatusError):
    """The server refused the request as malformed."""

    findings: tuple[str, ...] = ()
    """What a local check of roles, ids and contents found."""


class ContextTooLongError(InvalidRequestError):
    """Prompt and output do not fit the model's context."""

    limit_tokens: int | None = None
    """The model's limit, if the server named it."""

    requested_tokens: int | None = None
    """What the request would have needed, if the server named it."""


class RequestTooLargeError(InvalidRequestError):
    """The request has more bytes than the server takes."""

    limit_bytes: int | None = None
    """The server's limit, if it named one."""


class ContentFilteredError(InvalidRequestError):
    """The server's content filter refused the request."""


class ToolsUnsupportedError(InvalidRequestError):
    """The server was started without what tool calls need; the message names the missing flags."""


# --- the engine: it broke the format -------------------------------------------------------------


class ProtocolError(KimiAgentError):
    """The server's reply cannot be read."""

    retryable: bool = True
    """True if the same request may succeed later."""

    def __init__(self, message: str, *, raw: str = "") -> None:
        super().__init__(message)
        self.raw = raw
        """The offending text, cut to a readable length."""


class IncompleteStreamError(ProtocolError):
    """The stream ended before the reply did."""


# --- the model -----------------------------------------------------------------------------------


class ModelError(KimiAgentError):
    """A well-formed reply that nobody can use."""

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable


# --- a limit of the caller -----------------------------------------------------------------------


class LimitError(KimiAgentError):
    """A limit of `RunLimits` was reached; `.result` holds everything done until then."""


class StepLimitError(LimitError):
    """`RunLimits.max_steps` requests were made and the model still wants tools."""


class TokenLimitError(LimitError):
    """`RunLimits.max_total_tokens` is used up."""


class LoopDetectedError(LimitError):
    """The model keeps making the same calls and getting the same results."""
