"""What an endpoint accepts."""

from __future__ import annotations

from dataclasses import dataclass, fields

from eddy_embed.errors import InvalidParameter

MEBIBYTE = 2**20


@dataclass(frozen=True)
class Limits:
    """What an endpoint accepts, and how long it waits.

    Attributes:
        inputs: Most inputs in a request.
        input_characters: Most characters in an input: looked at before it is tokenized.
        input_tokens: Most tokens in an input.
        request_tokens: Most tokens in a request.
        body_bytes: Most bytes in a request's body.
        pending_bytes: Most bytes of bodies that may be on their way in, or wait to be checked, at the same time.
        pending_tokens: Most tokens that were accepted and are not done.
        unsent_bytes: Bytes of answers, not all read by their clients, beyond which no further request is accepted.
        requests: Most requests that were read and are not answered.
        connections: Most open connections.
        header_seconds: For the head of a request to arrive.
        body_seconds: For the body of a request to arrive.
        write_seconds: In which the client must take in something of an answer that is not all sent.
        idle_seconds: That a connection stays open without a request.
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
        """Refuse what would accept nothing.

        Raises:
            InvalidParameter: A limit is not above 0.
        """
        for each in fields(self):
            if not (value := getattr(self, each.name)) > 0:
                raise InvalidParameter(f"limit {each.name}={value} accepts nothing; it must be above 0")
