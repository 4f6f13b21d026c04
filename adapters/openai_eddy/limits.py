"""Limits of an endpoint on sizes, concurrency and time."""

from __future__ import annotations

from dataclasses import dataclass, fields

from eddy_embed.errors import InvalidParameter

MEBIBYTE = 2**20


@dataclass(frozen=True)
class Limits:
    """Limits of an endpoint on sizes, concurrency and time.

    Attributes:
        inputs: Maximum number of inputs in a request.
        input_characters: Maximum number of characters in an input, checked before tokenization.
        input_tokens: Maximum number of tokens in an input.
        request_tokens: Maximum number of tokens in a request.
        body_bytes: Maximum size of a request's body.
        pending_bytes: Maximum size of all bodies that are being received or not validated yet.
        pending_tokens: Maximum number of tokens accepted and not embedded yet.
        unsent_bytes: Size of responses not fully sent above which the server refuses further requests.
        requests: Maximum number of requests received and not answered.
        connections: Number of open connections from which on each request is refused.
        header_seconds: Time for a request's head to arrive.
        body_seconds: Time for a request's body to arrive.
        write_seconds: Time in which a client must read some part of its response.
        idle_seconds: Time for which an idle connection stays open.

    Raises:
        InvalidParameter: A limit is not above 0.
    """

    inputs: int = 2048
    input_characters: int = 1_000_000
    input_tokens: int = 65_536
    request_tokens: int = 300_000
    body_bytes: int = 8 * MEBIBYTE
    pending_bytes: int = 128 * MEBIBYTE
    pending_tokens: int = 600_000
    unsent_bytes: int = 256 * MEBIBYTE
    requests: int = 512
    connections: int = 1024
    header_seconds: float = 10.0
    body_seconds: float = 60.0
    write_seconds: float = 30.0
    idle_seconds: int = 30

    def __post_init__(self) -> None:
        for each in fields(self):
            if not (value := getattr(self, each.name)) > 0:
                raise InvalidParameter(f"limit {each.name}={value} accepts nothing; it must be above 0")
