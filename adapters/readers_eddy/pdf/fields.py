"""Values of form fields, and text that was typed onto a page of a PDF file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from ctypes import POINTER, c_float, cast, create_string_buffer
from typing import Any

import pypdfium2.raw as pdfium
from pypdfium2 import PdfPage

from readers_eddy.pdf.lines import Line

_MARKS = {True: "☒", False: "☐"}
_BUTTONS = (pdfium.FPDF_FORMFIELD_CHECKBOX, pdfium.FPDF_FORMFIELD_RADIOBUTTON)
_UNREAD = (pdfium.FPDF_FORMFIELD_PUSHBUTTON, pdfium.FPDF_FORMFIELD_SIGNATURE, pdfium.FPDF_FORMFIELD_UNKNOWN)
_SIZE = 10.0  # of a field whose own is not known
_UNSEEN = pdfium.FPDF_ANNOT_FLAG_HIDDEN | pdfium.FPDF_ANNOT_FLAG_NOVIEW


def read_fields(page: PdfPage) -> list[Line]:
    """Return the fields that are filled in, as "name: value" where each stands, and typed comments."""
    return list(_fields(page))


def _fields(page: PdfPage) -> Iterator[Line]:
    form = page.formenv.raw if page.formenv else None
    for index in range(pdfium.FPDFPage_GetAnnotCount(page.raw)):
        annot = pdfium.FPDFPage_GetAnnot(page.raw, index)
        if not annot:
            continue
        kind = pdfium.FPDFAnnot_GetSubtype(annot)
        text = ""
        if pdfium.FPDFAnnot_GetFlags(annot) & _UNSEEN:
            pass
        elif kind == pdfium.FPDF_ANNOT_FREETEXT:
            text = _string(lambda *to, annot=annot: pdfium.FPDFAnnot_GetStringValue(annot, b"Contents", *to))
        elif kind == pdfium.FPDF_ANNOT_WIDGET and form is not None:
            text = _value(form, annot)
        box = pdfium.FS_RECTF()
        if text and pdfium.FPDFAnnot_GetRect(annot, box):
            size = c_float()
            known = form is not None and pdfium.FPDFAnnot_GetFontSize(form, annot, size) and size.value > 1
            height = box.top - box.bottom
            em = min(size.value if known else _SIZE, max(height, 1.0))
            base = (box.bottom + (height - em) / 2 if height < 2.5 * em else box.top - em) + 0.2 * em
            for row, line in enumerate(text.splitlines()):
                yield Line(line, 0, box.left, base - 1.2 * em * row, em, end=box.right)
        pdfium.FPDFPage_CloseAnnot(annot)


def _value(form: Any, annot: Any) -> str:
    kind = pdfium.FPDFAnnot_GetFormFieldType(form, annot)
    if kind in _UNREAD or pdfium.FPDFAnnot_GetFormFieldFlags(form, annot) & 1 << 13:  # a password
        return ""
    read = [pdfium.FPDFAnnot_GetFormFieldAlternateName, pdfium.FPDFAnnot_GetFormFieldName]
    name = next((text for getter in read if (text := _string(lambda *to, getter=getter: getter(form, annot, *to)))), "")
    if kind in _BUTTONS:
        return f"{_MARKS[bool(pdfium.FPDFAnnot_IsChecked(form, annot))]} {name}"
    value = ", ".join(_chosen(form, annot)) or _string(lambda *to: pdfium.FPDFAnnot_GetFormFieldValue(form, annot, *to))
    return f"{name}: {value}" if value.strip() else ""


def _chosen(form: Any, annot: Any) -> Iterator[str]:
    """Yield the labels of the options that are chosen in a list; the field's own value is their names in the file."""
    for at in range(max(pdfium.FPDFAnnot_GetOptionCount(form, annot), 0)):
        if pdfium.FPDFAnnot_IsOptionSelected(form, annot, at):
            yield _string(lambda *to, at=at: pdfium.FPDFAnnot_GetOptionLabel(form, annot, at, *to))


def _string(read: Callable[..., int]) -> str:
    """Return a string that PDFium writes into a buffer, whose size in bytes it tells first."""
    size = read(None, 0)
    buffer = create_string_buffer(size)
    read(cast(buffer, POINTER(pdfium.FPDF_WCHAR)), size)
    return buffer.raw[: max(size - 2, 0)].decode("utf-16-le", "replace").replace("\r\n", "\n").replace("\r", "\n")
