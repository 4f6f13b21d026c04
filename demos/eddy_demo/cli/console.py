"""Print answers with their best sentence, reports and tables; this imports neither torch nor Chroma."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from eddy_demo.display_text import printable, unwrapped

if TYPE_CHECKING:
    from chroma_eddy import StoredDocument
    from eddy_demo.ask import FoundPassage
    from eddy_demo.evaluate import SearchScores
    from eddy_demo.library.settings import LibrarySettings
    from readers_eddy.documents import SkippedFile, SourceDocument

out = Console(highlight=False, soft_wrap=False)
err = Console(stderr=True, highlight=False)
DEFAULT_LIBRARY = Path("library")
_MAX_WIDTH = 100
_BEST_STYLE = "bold black on yellow"
_MARKERS = ("»", "«")
"""Around the best sentence if the output has no colour."""


def print_answers(console: Console, question: str, passages: Sequence[FoundPassage]) -> None:
    """Print a question and its passages."""
    from eddy_demo.ask import ANSWERS

    console.print(Text.assemble("\n", ("Q  ", "bold cyan"), (printable(question), "bold")))
    if not passages:
        console.print("   The library has no passage yet.", style="dim")
    elif passages[0].score < ANSWERS:
        console.print("   Not in your documents. The closest passages:")
    for rank, passage in enumerate(passages, start=1):
        console.print()
        _print_passage(console, rank, passage)


def _print_passage(console: Console, rank: int, passage: FoundPassage) -> None:
    width = min(console.width, _MAX_WIDTH)
    name = Text.assemble((f"{rank}  ", "bold"), (printable(passage.document), "bold green"))
    if passage.title and passage.title != passage.document:
        name.append(f"  {printable(passage.title)}", "green")
    reranked = "" if passage.rerank_score is None else f"rerank {passage.rerank_score:.3f}, "
    score = Text(f"{reranked}score {passage.score:.2f}", "bold")
    name.truncate(max(width - len(score) - 2, 10), overflow="ellipsis")
    name.append(" " * (width - name.cell_len - score.cell_len))
    console.print(name + score)
    where = Text(", ".join(filter(None, [passage.cited, passage.headings.replace(" > ", " › ")])), "dim")
    text = _highlighted(passage, marked=not (console.is_terminal and console.color_system and not console.no_color))
    for line in (*where.wrap(console, width - 3), *text.wrap(console, width - 3)):
        line.rstrip()
        console.print(Text("   ") + line if line else "")


def _highlighted(passage: FoundPassage, marked: bool) -> Text:
    first, last = passage.sentence_start - passage.start, passage.sentence_end - passage.start
    text = unwrapped(passage.text)
    before, best, after = (printable(part.replace("\0", "")) for part in (text[:first], text[first:last], text[last:]))
    opening, closing = _MARKERS if marked else ("", "")
    return Text.assemble(before, (f"{opening}{best}{closing}", _BEST_STYLE), after)


def print_skipped(console: Console, skipped: Sequence[SkippedFile], other_types: Counter[str]) -> None:
    """Print which files and rows were skipped, and why, and how many files are of types that are not read."""
    from readers_eddy.documents import list_other_types, list_skipped

    if other_types:
        console.print(Text(f"{printable(list_other_types(other_types))}: not read.", "yellow"))
    if not skipped:
        return
    console.print(Text(f"Skipped {pluralize(len(skipped), 'file or row', 'files or rows')}:", "bold yellow"))
    for line in list_skipped(skipped):
        console.print(Text(f"  {printable(line)}", "yellow"))


def print_notes(console: Console, documents: Sequence[SourceDocument], most: int = 20) -> None:
    """Print what the readers left out or repaired."""
    rows = [(document.name, note) for document in documents for note in document.notes]
    for name, note in rows[:most]:
        console.print(Text(f"{printable(name)}: {printable(note)}.", "dim"))
    if len(rows) > most:
        console.print(Text(f"… and {pluralize(len(rows) - most, 'more note')} of this kind.", "dim"))


def print_missing(console: Console, names: Sequence[str], *, removed: bool, most: int = 5) -> None:
    """Print which documents' files no longer exist, and whether they were removed from the library."""
    if not names:
        return
    shown = printable(", ".join(names[:most])) + (f" and {len(names) - most} more" if len(names) > most else "")
    if removed:
        console.print(Text(f"Taken out, because no longer there: {shown}."))
    else:
        console.print(Text(f"No longer there, but still in the library: {shown}. To take out: --sync.", "yellow"))


def print_incomplete(console: Console, ids: Sequence[str], entries: Mapping[str, StoredDocument]) -> None:
    """Print which documents a writer, killed or still at work, has not written whole; new ones have no entry yet."""
    if not ids:
        return
    names = [printable(str(entries[id_].metadata["name"])) for id_ in ids if id_ in entries]
    new = len(ids) - len(names)
    shown = ", ".join([*names, *([f"{new} new"] if new else [])])
    message = f"Writing {pluralize(len(ids), 'document')} was interrupted, so answers are without the change: {shown}."
    console.print(Text(f"{message} Ingest again.", "yellow"))


def print_default_method(console: Console, settings: LibrarySettings) -> None:
    """Print the method that a new library gets if the user chose none."""
    if settings.plan != "chosen":
        method = (settings.next or settings).method
        layers = ", without its layers" if settings.next is None and settings.plan == "fast" else ""
        console.print(
            Text(f"Method {method}: recommended for retrieval on {settings.model}{layers}. Another: --method.", "dim")
        )


def print_scores(console: Console, rows: Sequence[SearchScores], questions: int) -> None:
    """Print a table of scores, a row for each way to search."""
    table = Table(title=f"{pluralize(questions, 'question')}, shares of them", title_justify="left")
    table.add_column("searched with")
    for column in ("passages", "hit@1", "hit@5", "MRR@10", "page answers", "rightly"):
        table.add_column(column, justify="right")
    for row in rows:
        shares = (row.hit_at_1, row.hit_at_5, row.mrr_at_10, row.answered, row.quoted)
        shown = ("" if share is None else f"{share:.3f}" for share in shares)
        table.add_row(row.system, str(row.passages), *shown)
    console.print(table)


@contextmanager
def progress_bar(console: Console, what: str, stays: bool = True) -> Iterator[Callable[[float, int, int], None]]:
    """Show a bar; yield the function to call with the share that is done, and with documents written and all.

    One that does not stay is shown on terminals alone, until it is done.
    """
    shown, written = stays or console.is_terminal, TextColumn("{task.fields[left]}")
    columns = TextColumn("{task.description}"), BarColumn(bar_width=40), TaskProgressColumn(), TimeRemainingColumn()
    with Progress(*columns, written, console=console, transient=not stays, disable=not shown) as bar:
        task = bar.add_task(what, total=1.0, left="")
        yield lambda share, done, total: bar.update(task, completed=share, left=f"left, {done}/{total} documents")


def pluralize(number: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun: `1 document`, `2,000 documents`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def program_name() -> str:
    """Return the command that started this program, for printed examples."""
    called = Path(sys.argv[0])
    found = shutil.which("eddy-demo")
    if called.name != "eddy-demo" or (found and Path(found).resolve() == called.resolve()):
        return "eddy-demo"
    try:
        return shlex.quote(str(called.absolute().relative_to(Path.cwd())))
    except ValueError:
        return shlex.quote(str(called))


def library_option(library: Path) -> str:
    """Return the option that names a library, for printed examples; nothing for the default one."""
    return "" if library == DEFAULT_LIBRARY else f" --library {shlex.quote(str(library))}"
