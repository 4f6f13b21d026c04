"""Charts and diagrams in slides, Word files and sheets, and the text that a reader sees."""

from __future__ import annotations

import datetime
import io
import zipfile

import xlsxwriter
from docx.oxml import parse_xml
from pptx import Presentation
from pptx.chart.data import CategoryChartData, XyChartData
from pptx.enum.chart import XL_CHART_TYPE as CHARTS
from pptx.opc.package import Part
from pptx.opc.packuri import PackURI
from pptx.util import Inches
from tests.readers.corpus import Sample
from tests.readers.corpus.office_files import saved
from tests.readers.word_files import raw_word

_DRAWINGS = "http://schemas.openxmlformats.org/drawingml/2006"
_NAMESPACES = " ".join(
    f'xmlns:{prefix}="{address}"'
    for prefix, address in (
        ("a", f"{_DRAWINGS}/main"),
        ("c", f"{_DRAWINGS}/chart"),
        ("dgm", f"{_DRAWINGS}/diagram"),
        ("cx", "http://schemas.microsoft.com/office/drawing/2014/chartex"),
        ("mc", "http://schemas.openxmlformats.org/markup-compatibility/2006"),
        ("p", "http://schemas.openxmlformats.org/presentationml/2006/main"),
        ("r", "http://schemas.openxmlformats.org/officeDocument/2006/relationships"),
        ("w", "http://schemas.openxmlformats.org/wordprocessingml/2006/main"),
        ("m", "http://schemas.openxmlformats.org/officeDocument/2006/math"),
        ("a14", "http://schemas.microsoft.com/office/drawing/2010/main"),
    )
)
_AREA = Inches(1), Inches(2), Inches(6), Inches(4)


def charts() -> bytes:
    """A chart with titles, values in percent and a gap; one in three dimensions, of months in quarters; of points."""
    file = Presentation()
    shapes = file.slides.add_slide(file.slide_layouts[5]).shapes
    shapes.title.text = "Boats"
    shares = CategoryChartData(number_format="0%")
    shares.categories = ["Bay", "Cliff"]
    shares.add_series("Summer", (0.75, None))
    shares.add_series("Winter", (0.1 + 0.2, 1))
    chart = shapes.add_chart(CHARTS.COLUMN_CLUSTERED, *_AREA, shares).chart
    chart.chart_title.text_frame.text = "Share of seats taken"
    chart.category_axis.axis_title.text_frame.text = "Pier"
    chart.value_axis.axis_title.text_frame.text = "Seats"
    levels, points, days = CategoryChartData(), XyChartData(), CategoryChartData()
    for quarter, months in (("Spring", ("April", "May")), ("Autumn", ("October",))):
        wider = levels.add_category(quarter)
        for month in months:
            wider.add_sub_category(month)
    levels.add_series("Trips", (3, 4, 1234.5))
    depth = points.add_series("Depth")
    for x, y in ((0.5, 7), (2, 9)):
        depth.add_data_point(x, y)
    days.categories = [datetime.date(2026, 3, 1), datetime.date(2026, 3, 2)]
    days.add_series("Crew", (2, 3))
    deep, _, crew = (
        shapes.add_chart(kind, Inches(1), Inches(3 + n), Inches(6), Inches(1), data).chart._chartSpace
        for n, (kind, data) in enumerate(
            ((CHARTS.COLUMN_STACKED, levels), (CHARTS.XY_SCATTER, points), (CHARTS.LINE, days))
        )
    )
    deep.plotArea[0].tag = deep.plotArea[0].tag.replace("barChart", "bar3DChart")
    crew.find("{*}date1904").set("val", "1")  # the same numbers, four years later
    return saved(file)


def _point(id_: str, text: str = "", kind: str = "node") -> str:
    words = f"<a:bodyPr/><a:p><a:r><a:t>{text}</a:t></a:r></a:p>"
    return f'<dgm:pt modelId="{id_}" type="{kind}"><dgm:t>{words}</dgm:t></dgm:pt>'


def _link(source: str, target: str, order: int, kind: str = "parOf") -> str:
    ends = f'srcId="{source}" destId="{target}" srcOrd="{order}" destOrd="0"'
    return f'<dgm:cxn modelId="{source}{target}" type="{kind}" {ends}/>'


DIAGRAM = (
    f"<dgm:dataModel {_NAMESPACES}><dgm:ptLst>{_point('0', kind='doc')}{_point('3', 'Sails')}{_point('2', 'Crew')}"
    f"{_point('1', 'Ferry')}{_point('4', 'shown', kind='pres')}</dgm:ptLst><dgm:cxnLst>{_link('1', '3', 1)}"
    f"{_link('0', '1', 0)}{_link('1', '2', 0)}{_link('3', '1', 0)}{_link('4', '0', 0, 'presOf')}"
    "</dgm:cxnLst></dgm:dataModel>"
).encode()
NEWER = (
    f'<cx:chartSpace {_NAMESPACES}><cx:chartData><cx:data id="0"><cx:strDim type="cat"><cx:lvl ptCount="2">'
    '<cx:pt idx="0">Fuel</cx:pt><cx:pt idx="1">Total</cx:pt></cx:lvl></cx:strDim><cx:numDim type="val">'
    '<cx:lvl ptCount="2" formatCode="#,##0"><cx:pt idx="0">-1200</cx:pt><cx:pt idx="1">300.4</cx:pt></cx:lvl>'
    "</cx:numDim></cx:data></cx:chartData><cx:chart><cx:title><cx:tx><cx:rich><a:p><a:r><a:t>Costs</a:t></a:r></a:p></cx:rich>"
    "</cx:tx></cx:title><cx:plotArea><cx:plotAreaRegion><cx:series><cx:tx><cx:txData><cx:v>Euro</cx:v>"
    '</cx:txData></cx:tx><cx:dataId val="0"/></cx:series></cx:plotAreaRegion></cx:plotArea></cx:chart></cx:chartSpace>'
).encode()


FORMULA = (
    f"<a14:m {_NAMESPACES}><m:oMath><m:r><m:t>E=m</m:t></m:r><m:sSup><m:e><m:r><m:t>c</m:t></m:r></m:e>"
    "<m:sup><m:r><m:t>2</m:t></m:r></m:sup></m:sSup></m:oMath></a14:m>"
)


def _frame(inside: str, address: str) -> str:
    return (
        f'<p:graphicFrame {_NAMESPACES}><p:nvGraphicFramePr><p:cNvPr id="9" name="x"/><p:cNvGraphicFramePr/><p:nvPr/>'
        '</p:nvGraphicFramePr><p:xfrm><a:off x="0" y="1"/><a:ext cx="9" cy="9"/></p:xfrm><a:graphic>'
        f'<a:graphicData uri="{address}">{inside}</a:graphicData></a:graphic></p:graphicFrame>'
    )


def diagram_slide(*parts: bytes) -> bytes:
    """A slide with a diagram, then charts of newer kinds and a box with a formula, beside pictures for old programs."""
    file = Presentation()
    slide = file.slides.add_slide(file.slide_layouts[6])
    ids = [
        slide.part.relate_to(Part(PackURI(f"/ppt/graphic{n}.xml"), "application/xml", slide.part.package, part), f"{n}")
        for n, part in enumerate(parts)
    ]
    newer = "http://schemas.microsoft.com/office/drawing/2014/chartex"
    frames = [parse_xml(_frame(f'<cx:chart r:id="{id_}"/>', newer)) for id_ in ids[1:]]
    tree = slide.shapes._spTree
    tree.append(parse_xml(_frame(f'<dgm:relIds r:dm="{ids[0]}"/>', f"{_DRAWINGS}/diagram")))
    box = slide.shapes.add_textbox(*_AREA)
    box.text_frame.text = "So "
    box.text_frame.paragraphs[0]._p.append(parse_xml(FORMULA))
    for choice in (*frames, box._element):
        tree.append(parse_xml(f"<mc:AlternateContent {_NAMESPACES}><mc:Choice/><mc:Fallback/></mc:AlternateContent>"))
        tree[-1][0].append(choice)
    return saved(file)


def with_charts(*parts: bytes) -> bytes:
    """A Word file with charts below a paragraph."""
    drawings = (f'<w:drawing><c:chart r:id="chart{n}"/></w:drawing>' for n in range(len(parts)))
    body = f"<w:p><w:r><w:t>Start</w:t></w:r><w:r {_NAMESPACES}>{''.join(drawings)}</w:r></w:p>"
    return raw_word(body, **{f"chart{n}": part for n, part in enumerate(parts)})


def word_charts() -> bytes:
    with zipfile.ZipFile(io.BytesIO(charts())) as archive:
        chart = archive.read(min(name for name in archive.namelist() if name.startswith("ppt/charts/chart")))
    return with_charts(chart, DIAGRAM)


def chart_sheet() -> bytes:
    out = io.BytesIO()
    with xlsxwriter.Workbook(out) as file:
        sheet = file.add_worksheet("Boats")
        for row, cells in enumerate((("Bay", 3), ("Cliff", 4))):
            sheet.write_row(row, 0, cells)
        chart = file.add_chart({"type": "column"})
        chart.add_series({"categories": "=Boats!$A$1:$A$2", "values": "=Boats!$B$1:$B$2"})
        chart.set_title({"name": "Boats at each pier"})
        sheet.insert_chart("D2", chart)
    return out.getvalue()


_SHARES = "Share of seats taken\nSeats\n\n| Pier | Summer | Winter |\n| Bay | 75% | 30% |\n| Cliff |  | 100% |"
GRAPHIC_FILES = {
    "slides: charts": Sample(
        ".pptx",
        charts,
        f"# Boats\n\n{_SHARES}\n\n"
        "|  |  | Trips |\n| Spring | April | 3 |\n| Spring | May | 4 |\n| Autumn | October | 1234.5 |\n\n"
        "|  | Depth |\n| 0.5 | 7 |\n| 2 | 9 |\n\n|  | Crew |\n| 2030-03-02 | 2 |\n| 2030-03-03 | 3 |",
    ),
    "slides: a diagram, a chart of a newer kind, a formula": Sample(
        ".pptx",
        lambda: diagram_slide(DIAGRAM, NEWER),
        "- Ferry\n  - Crew\n  - Sails\n\nCosts\n\n|  | Euro |\n| Fuel | -1,200 |\n| Total | 300 |\n\nSo E=mc²",
    ),
    "word: a chart and a diagram": Sample(".docx", word_charts, f"Start\n\n{_SHARES}\n\n- Ferry\n- Crew\n- Sails"),
    "sheets: a chart of cells": Sample(
        ".xlsx", chart_sheet, "# Boats\n\n| Bay | 3 |\n| Cliff | 4 |\n\nBoats at each pier"
    ),
}
