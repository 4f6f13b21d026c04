"""Read e-mails: the header lines that people see, and the body."""

from __future__ import annotations

import email
from collections.abc import Iterator
from email.message import MIMEPart
from email.policy import default

import webencodings

from readers_eddy.content import Content, choose_title
from readers_eddy.errors import Unreadable
from readers_eddy.markup import read_html

_SHOWN = ("From", "To", "Cc", "Date", "Subject")


def read_mail(data: bytes) -> Content:
    """Extract sender, receivers, date, subject and body; attachments are named in the notes."""
    message = email.message_from_bytes(data, policy=default)
    notes, names = list[str](), list[str]()
    text = "\n\n".join(_parts(message, notes, names))
    if not any(message[name] for name in _SHOWN) or not text:
        raise Unreadable("no e-mail, or without a text that can be read, as an encrypted one: save its text as .txt")
    title, own = choose_title([" ".join(str(message["Subject"] or "").split())])
    attached = (f"attachments are not read: {', '.join(names)}",) if names else ()
    return Content(title, text, notes=(*own, *attached, *notes))


def _parts(message: MIMEPart, notes: list[str], names: list[str]) -> Iterator[str]:
    """Yield the header and body of a message, and of those that it forwards; nothing without a body."""
    body = message.get_body(("html", "plain"))
    if body is None:
        return
    yield "\n".join(f"{name}: {' '.join(str(message[name]).split())}" for name in _SHOWN if message[name])
    text = _decoded(body).replace("\r\n", "\n")
    content = read_html(text) if body.get_content_subtype() == "html" else Content("", text.strip())
    notes += content.notes
    yield content.text
    for part in message.iter_attachments() if message.is_multipart() else ():
        if part.get_content_type() == "message/rfc822":
            yield "Forwarded:"
            yield from _parts(part.get_content(), notes, names)
        elif part is not body and not part.is_multipart():
            names.append(_name(part))


def _decoded(body: MIMEPart) -> str:
    payload, label = body.get_payload(decode=True), body.get_content_charset("utf-8")
    assert isinstance(payload, bytes)
    try:
        return str(webencodings.decode(payload, label)[0])
    except LookupError:
        raise Unreadable(f"its charset {label!r:.80} is not known; save its text as .txt") from None


def _name(part: MIMEPart) -> str:
    return part.get_filename() or part.get_content_type()
