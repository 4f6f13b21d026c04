"""Read e-mails: the header lines that people see, and the body."""

from __future__ import annotations

import email
from collections.abc import Iterator
from email.message import EmailMessage, MIMEPart
from email.policy import default

from readers_eddy.charsets import decode
from readers_eddy.content import Content, choose_title
from readers_eddy.errors import Unreadable
from readers_eddy.markup import read_html

_SHOWN = ("From", "To", "Cc", "Date", "Subject")


def read_mail(data: bytes) -> Content:
    """Extract sender, receivers, date, subject and body; attachments are named in the notes."""
    message = email.message_from_bytes(data, policy=default)
    notes, names = list[str](), list[str]()
    body = [text for text in _texts(message, notes, names) if text]
    header = _header(message)
    if not header or not body:
        raise Unreadable("no e-mail, or without a text that can be read, as an encrypted one: save its text as .txt")
    title, title_notes = choose_title([" ".join(str(message["Subject"] or "").split())])
    attached = (f"attachments are not read: {', '.join(names)}",) if names else ()
    return Content(title, "\n\n".join([header, *body]), notes=(*title_notes, *attached, *notes))


def _header(message: MIMEPart) -> str:
    return "\n".join(f"{name}: {' '.join(str(message[name]).split())}" for name in _SHOWN if message[name])


def _texts(part: MIMEPart, notes: list[str], names: list[str]) -> Iterator[str]:
    """Yield the texts of a part in their order, and of messages that it forwards."""
    kind, inside = part.get_content_type(), list(part.iter_parts()) if part.is_multipart() else []
    if kind == "message/rfc822" and isinstance(inner := part.get_content(), EmailMessage):
        yield from ("Forwarded:", _header(inner), *_texts(inner, notes, names))
    elif kind == "multipart/alternative":
        versions = ([text for text in _texts(version, notes, names) if text] for version in reversed(inside))
        yield from next(filter(None, versions), [])
    elif part.is_multipart():
        for inner_part in inside:
            yield from _texts(inner_part, notes, names)
    elif kind in ("text/plain", "text/html") and not part.get_filename() and not part.is_attachment():
        payload, label = part.get_payload(decode=True), part.get_content_charset()
        assert isinstance(payload, bytes)
        label = None if label in ("ascii", "us-ascii") else label  # what many programs say of any text
        text = decode(payload, kind == "text/html", label).replace("\r\n", "\n")
        content = read_html(text) if kind == "text/html" else Content("", text.strip())
        notes += content.notes
        yield content.text
    else:
        names.append(part.get_filename() or kind)
