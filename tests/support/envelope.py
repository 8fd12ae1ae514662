"""The envelope that every call is answered with, read strictly."""

from typing import Any, NamedTuple, Self


class Envelope(NamedTuple):
    """The seven fields, in the contract's order."""

    ok: bool
    code: str
    stdout: str
    stderr: str
    exit_code: int | None
    duration_ms: int
    policy_reason: str

    @classmethod
    def of(cls, untrusted: Any) -> Self:
        """Return the envelope in a decoded JSON value. Raises AssertionError unless it has exactly the seven fields."""
        assert isinstance(untrusted, dict), f"no envelope: {untrusted!r}"
        assert list(untrusted) == list(cls._fields), f"not the seven fields: {list(untrusted)}"
        return cls(**untrusted)
