"""Read e-mails: the header lines that people see, and the body."""

from __future__ import annotations

import email
from email.message import MIMEPart
from email.policy import default

import webencodings

from eddy_demo.errors import Unreadable
from eddy_demo.readers.content import Content, choose_title
from eddy_demo.readers.markup import read_html

_SHOWN = ("From", "To", "Cc", "Date", "Subject")


def read_mail(data: bytes) -> Content:
    """Extract sender, receivers, date, subject and body; attachments are named in the notes."""
    message = email.message_from_bytes(data, policy=default)
    header = [f"{name}: {' '.join(str(message[name]).split())}" for name in _SHOWN if message[name]]
    body = message.get_body(("html", "plain"))
    if not header or body is None:
        raise Unreadable("no e-mail, or without a text that can be read, as an encrypted one: save its text as .txt")
    html = body.get_content_subtype() == "html"
    text = _decoded(body).replace("\r\n", "\n")
    content = read_html(text) if html else Content("", text.strip())
    title, notes = choose_title([" ".join(str(message["Subject"] or "").split())])
    if names := [_name(part) for part in message.iter_attachments() if part is not body and not part.is_multipart()]:
        notes += (f"attachments are not read: {', '.join(names)}",)
    return Content(title, "\n".join(header) + f"\n\n{content.text}", notes=notes + content.notes)


def _decoded(body: MIMEPart) -> str:
    payload, label = body.get_payload(decode=True), body.get_content_charset("utf-8")
    assert isinstance(payload, bytes)
    try:
        return str(webencodings.decode(payload, label)[0])
    except LookupError:
        raise Unreadable(f"its charset {label!r:.80} is not known; save its text as .txt") from None


def _name(part: MIMEPart) -> str:
    return part.get_filename() or part.get_content_type()
