"""The access token of a page that more than this machine can reach: a cookie for browsers, a header for programs."""

from __future__ import annotations

import hashlib
import secrets

from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response

from eddy_demo.web.errors import RequestRefused

OPEN_PATHS = ("/api/health",)
"""Paths that need no access token."""


class AccessToken:
    """The token that requests must prove to know."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._cookie = hashlib.sha256(self._token).hexdigest()
        # Browsers share cookies among all ports of a host, where another library may have another token.
        self._cookie_name = f"eddy-{self._cookie[:8]}"

    def is_bearer(self, request: HTTPConnection) -> bool:
        """Whether the request has the token in its `Authorization` header, which other sites' pages cannot send."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self._matches(given.strip().encode("latin-1"))

    def login(self, request: HTTPConnection) -> Response | None:
        """Return the answer to an address with the token, which sets the cookie; None if the request may go on.

        Raises:
            RequestRefused: The request does not know the token.
        """
        if request.url.path in OPEN_PATHS:
            return None
        given = request.query_params.get("token")
        if given is not None and self._matches(given.encode("utf-8", "replace")):
            answer = RedirectResponse(request.url.remove_query_params("token").replace(scheme="", netloc=""), 303)
            answer.set_cookie(self._cookie_name, self._cookie, httponly=True, samesite="strict")
            return answer
        cookie = request.cookies.get(self._cookie_name, "")
        if not secrets.compare_digest(cookie.encode(), self._cookie.encode()) and not self.is_bearer(request):
            raise RequestRefused(
                401,
                "this page needs its access token: open its address once with ?token=TOKEN at the end, or send the "
                "header 'Authorization: Bearer TOKEN'",
            )
        return None

    def _matches(self, given: bytes) -> bool:
        return secrets.compare_digest(given, self._token)
