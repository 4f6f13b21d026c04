"""What the terminal shows: answers with their best sentence, reports, tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from eddy_demo.ask import Answer
    from eddy_demo.evaluate import Score
    from eddy_demo.reading import Skipped

WIDTH = 100
BEST = "bold black on yellow"
MARKS = ("»", "«")
"""Around the best sentence where the terminal, a file or NO_COLOR leaves no colour to show it."""

# Control characters of a document are shown as their pictures: a file cannot drive the reader's terminal.
_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | {127: 0x2421, 13: None}
_PICTURES |= {code: 0xFFFD for code in range(128, 160)}


def printable(text: str) -> str:
    """Text without control characters, save line ends and tabs."""
    return text.translate(_PICTURES)


def answers(console: Console, question: str, found: Sequence[Answer]) -> None:
    """Print a question and the passages found."""
    console.print(Text.assemble("\n", ("Q  ", "bold cyan"), (printable(question), "bold")))
    if not found:
        console.print("   The library has no passage yet.", style="dim")
    for rank, answer in enumerate(found, start=1):
        console.print()
        console.print(_answer(rank, answer, marked=not _shows_colour(console)), width=min(console.width, WIDTH))


def _shows_colour(console: Console) -> bool:
    return console.is_terminal and not console.no_color and console.color_system is not None


def _answer(rank: int, answer: Answer, marked: bool) -> RenderableType:
    head = Table.grid(expand=True, padding=(0, 2))
    head.add_column(ratio=1, overflow="fold")
    head.add_column(justify="right", no_wrap=True)
    name = Text.assemble((f"{rank}  ", "bold"), (printable(answer.document), "bold green"))
    if answer.title and answer.title != answer.document:
        name.append(f"  {printable(answer.title)}", "green")
    head.add_row(name, Text(f"cosine {answer.cosine:.4f}", "bold"))
    where = Text(
        f"characters {answer.start}–{answer.end}, best sentence {answer.sentence_start}–{answer.sentence_end} "
        f"(cosine {answer.sentence_cosine:.4f})",
        "dim",
    )
    return Group(head, Padding(Group(where, _passage(answer, marked)), (0, 0, 0, 3), expand=False))


def _passage(answer: Answer, marked: bool) -> Text:
    first, last = answer.sentence_start - answer.start, answer.sentence_end - answer.start
    before, best, after = (
        printable(part) for part in (answer.text[:first], answer.text[first:last], answer.text[last:])
    )
    opening, closing = MARKS if marked else ("", "")
    return Text.assemble(before, (f"{opening}{best}{closing}", BEST), after)


def skipped(console: Console, rows: Sequence[Skipped], most: int = 20) -> None:
    """Print what was left out, and why."""
    if not rows:
        return
    console.print(Text(f"Skipped {count(len(rows), 'file or row', 'files or rows')}:", "bold yellow"))
    for row in rows[:most]:
        console.print(Text(f"  {printable(row.name)}: {row.reason}", "yellow"))
    if len(rows) > most:
        console.print(Text(f"  … and {len(rows) - most} more", "yellow"))


def scores(console: Console, rows: Sequence[Score], questions: int) -> None:
    """Print hit@1 and hit@5."""
    table = Table(
        title=f"{count(questions, 'question')}; a hit: a passage of the relevant document", title_justify="left"
    )
    table.add_column("searched with")
    for column in ("passages", "hit@1", "hit@5"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(row.system, str(row.passages), f"{row.hit_at_1:.3f}", f"{row.hit_at_5:.3f}")
    console.print(table)


def count(number: int, one: str, many: str | None = None) -> str:
    """`1 document`, `2,000 documents`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
