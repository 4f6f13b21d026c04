"""What the terminal shows: answers with their best sentence, reports, tables."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from eddy_demo.display_text import printable, unwrapped

if TYPE_CHECKING:
    from eddy_demo.ask import Answer
    from eddy_demo.evaluate import Score
    from eddy_demo.library.ingest import Report
    from eddy_demo.library.recipe import Recipe
    from eddy_demo.readers.documents import Document, Skipped

WIDTH = 100
BEST = "bold black on yellow"
MARKS = ("»", "«")
"""Around the best sentence where the terminal, a file or NO_COLOR leaves no colour to show it."""


def answers(console: Console, question: str, found: Sequence[Answer]) -> None:
    """Print a question and the passages found."""
    console.print(Text.assemble("\n", ("Q  ", "bold cyan"), (printable(question), "bold")))
    if not found:
        console.print("   The library has no passage yet.", style="dim")
    for rank, answer in enumerate(found, start=1):
        console.print()
        _answer(console, rank, answer)


def _answer(console: Console, rank: int, answer: Answer) -> None:
    width = min(console.width, WIDTH)
    name = Text.assemble((f"{rank}  ", "bold"), (printable(answer.document), "bold green"))
    if answer.title and answer.title != answer.document:
        name.append(f"  {printable(answer.title)}", "green")
    cosine = Text(f"cosine {answer.cosine:.4f}", "bold")
    name.truncate(max(width - len(cosine) - 2, 10), overflow="ellipsis")
    name.append(" " * (width - name.cell_len - cosine.cell_len))
    console.print(name + cosine)
    where = Text(
        f"{_pages(answer)}characters {answer.start}–{answer.end}, "
        f"best sentence {answer.sentence_start}–{answer.sentence_end} (cosine {answer.sentence_cosine:.4f})",
        "dim",
    )
    passage = _passage(answer, marked=not (console.is_terminal and console.color_system and not console.no_color))
    for line in (*where.wrap(console, width - 3), *passage.wrap(console, width - 3)):
        line.rstrip()
        console.print(Text("   ") + line if line else "")


def _pages(answer: Answer) -> str:
    if answer.page is None:
        return ""
    return f"p. {answer.page}, " if answer.page == answer.last_page else f"pp. {answer.page}–{answer.last_page}, "


def _passage(answer: Answer, marked: bool) -> Text:
    first, last = answer.sentence_start - answer.start, answer.sentence_end - answer.start
    text = unwrapped(answer.text)
    before, best, after = (printable(part.replace("\0", "")) for part in (text[:first], text[first:last], text[last:]))
    opening, closing = MARKS if marked else ("", "")
    return Text.assemble(before, (f"{opening}{best}{closing}", BEST), after)


def skipped(console: Console, rows: Sequence[Skipped], most: int = 20) -> None:
    """Print what was left out, and why."""
    if not rows:
        return
    console.print(Text(f"Skipped {count(len(rows), 'file or row', 'files or rows')}:", "bold yellow"))
    for row in rows[:most]:
        console.print(Text(f"  {printable(row.name)}: {printable(row.reason)}", "yellow"))
    if len(rows) > most:
        console.print(Text(f"  … and {len(rows) - most} more", "yellow"))


def notes(console: Console, documents: Sequence[Document], most: int = 20) -> None:
    """Print what the readers left out or repaired."""
    rows = [(document.name, note) for document in documents for note in document.notes]
    for name, note in rows[:most]:
        console.print(Text(f"{printable(name)}: {printable(note)}.", "dim"))
    if len(rows) > most:
        console.print(Text(f"… and {count(len(rows) - most, 'more note')} of this kind.", "dim"))


def gone(console: Console, names: Sequence[str], *, taken_out: bool, most: int = 5) -> None:
    """Print which documents' files are no longer there, and what becomes of them."""
    if not names:
        return
    shown = printable(", ".join(names[:most])) + (f" and {len(names) - most} more" if len(names) > most else "")
    if taken_out:
        console.print(Text(f"Taken out, because no longer there: {shown}."))
    else:
        console.print(Text(f"No longer there, but still in the library: {shown}. To take out: --sync.", "yellow"))


def default(console: Console, recipe: Recipe) -> None:
    """Print the method of a new library that nobody named."""
    if recipe.default:
        measured = f"Method {recipe.default}: measured best for {recipe.model} on its development set for retrieval."
        console.print(Text(f"{measured} Another: --method.", "dim"))


def fitted(console: Console, recipe: Recipe, report: Report, few: int) -> None:
    """Print what too few passages did to post-processing, and when to make the library anew."""
    again = "make the library anew with --rebuild"
    if 0 < report.unfitted < few:
        console.print(
            f"Stored with {report.embedder.method}, because {count(report.unfitted, 'different passage')} are too few "
            f"to fit the post-processing of {recipe.default} on: once there are {few} or more, {again}.",
            style="yellow",
        )
    elif report.unfitted:
        console.print(
            f"Stored with {report.embedder.method}, as the library began with few passages: there are enough now for "
            f"{recipe.default}; {again}.",
            style="yellow",
        )
    elif 0 < report.fitted_on < few:
        console.print(
            f"Post-processing was fitted on {count(report.fitted_on, 'passage')}, which is few: once there are "
            f"{few} or more, {again}.",
            style="yellow",
        )


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


@contextmanager
def bar(console: Console, characters: int, documents: int) -> Iterator[Callable[[float, int], None]]:
    """A progress bar; gives the function to call with the characters and documents done."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=40),
        TaskProgressColumn(),
        TextColumn("{task.fields[written]}/{task.fields[documents]} documents"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("Embedding", total=characters, written=0, documents=documents)
        yield lambda done, written: progress.update(task, completed=done, written=written)


def count(number: int, one: str, many: str | None = None) -> str:
    """`1 document`, `2,000 documents`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def command() -> str:
    """How this program was called, so that the line printed can be copied."""
    called = Path(sys.argv[0])
    found = shutil.which("eddy-demo")
    if called.name != "eddy-demo" or (found and Path(found).resolve() == called.resolve()):
        return "eddy-demo"
    try:
        return shlex.quote(str(called.absolute().relative_to(Path.cwd())))
    except ValueError:
        return shlex.quote(str(called))
