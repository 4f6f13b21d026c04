"""Which tokens the model sees, where placeholders stand, and from where their states are copied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

PST, BPST = 0, 1
PLAIN = "{text}"
PROMPTEOL = 'This sentence : "{text}" means in one word:"'
COT = 'After thinking step by step , this sentence : "{text}" means in one word:"'
KNOWLEDGE = (
    "The essence of a sentence is often captured by its main subjects and actions, while descriptive terms provide "
    'additional but less central details. With this in mind , this sentence : "{text}" means in one word:"'
)
ECHO = {
    "rewrite": ("Rewrite the sentence: {text}, rewritten sentence: {text}",) * 2,
    "released": ("Query:{text}\nQuery again:{text}", "Document:{text}\nDocument again:{text}"),
    "htp": ("Query: {text} Query again: {text}", "{text}{text}"),
    "bare": ("{text} {text}",) * 2,
}
"""Preset -> wording for queries, wording for documents."""
Span = tuple[int, int]


@dataclass(eq=False)
class Token:
    """One position. `start` and `end` count characters of the filled prompt; placeholders have none."""

    id: int
    start: int = -1
    end: int = -1
    owner: str = ""  # "special", "prompt" or "text"; "" for placeholders
    kind: int | None = None  # PST or BPST


@dataclass
class Layout:
    """A sequence ready for `forward`.

    Attributes:
        ids: Token ids; 0 stands in at placeholders.
        placeholders: Position -> PST or BPST.
        edges: (destination, source) positions.
        text: Positions of the tokens that belong to the text slot, in order.
        spans: Characters of the source text that each of `text` covers, clipped to the text.
    """

    ids: list[int]
    placeholders: dict[int, int] = field(default_factory=dict)
    edges: list[tuple[int, int]] = field(default_factory=list)
    text: list[int] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ids)


@dataclass
class Filled:
    """A filled prompt, tokenised once."""

    string: str
    literal: int  # first character of the template's own words before the text, behind an instruction
    start: int  # first character of the text slot that is pooled, the last one
    end: int
    tokens: list[Token]
    first: int  # first character of the first text slot
    place: int | None = None  # character before which the template puts placeholders, if it says so

    def anchor(self, token: Token) -> int:
        """The character that decides where a token belongs: its first that is not a blank, else its first.

        The blank that a token brings along (" next") says nothing about where it belongs: blanks between two spans
        are in neither.
        """
        for character in range(token.start, token.end):
            if not self.string[character].isspace():
                return character
        return token.start


def fill(
    tokenizer: Any, template: str, text: str, instruction: str | None = None, blank: str = " ", start: bool = True
) -> Filled:
    """Puts text into template, an instruction and one blank in front, and tokenises the whole once.

    With `start`, a start token goes ahead of it all where the tokenizer puts nothing there. A `{placeholder}` in the
    template is no part of the string.
    """
    head, marked, tail = template.partition("{placeholder}")
    template = head + tail
    *before, after = template.split("{text}")
    lead = "" if instruction is None else f"{instruction}{blank}"
    string, starts = lead, []
    for words in before:
        string += words
        starts.append(len(string))
        string += text
    last = starts[-1]
    place = len(lead + head.replace("{text}", text)) if marked else None
    filled = Filled(string + after, len(lead), last, last + len(text), [], starts[0], place)
    encoded = tokenizer(filled.string, return_offsets_mapping=True, return_special_tokens_mask=True)
    for i, special in zip(encoded["input_ids"], encoded["special_tokens_mask"], strict=True):
        if not special:
            break
        filled.tokens.append(Token(i, owner="special"))
    if start and not filled.tokens:
        filled.tokens += [Token(i, owner="special") for i in start_token(tokenizer)]
    columns = (encoded["input_ids"], encoded["offset_mapping"], encoded["special_tokens_mask"])
    for i, (first, stop), special in zip(*columns, strict=True):
        if special:  # in front, already taken; or an end token, which is dropped
            continue
        token = Token(i, first, stop)
        inside = filled.start <= filled.anchor(token) < filled.end
        token.owner = "text" if inside else "prompt"
        filled.tokens.append(token)
    return filled


def start_token(tokenizer: Any) -> list[int]:
    """The id of the token between the texts of a model's training, else its start token, else its end token."""
    between = tokenizer.get_vocab().get("<|endoftext|>")
    return [i for i in (between, tokenizer.bos_token_id, tokenizer.eos_token_id) if i is not None][:1]


def behind(tokenizer: Any) -> list[int]:
    """Ids of the specials that the tokenizer puts behind every text."""
    encoded = tokenizer("a", return_special_tokens_mask=True)
    found: list[int] = []
    for i, special in zip(reversed(encoded["input_ids"]), reversed(encoded["special_tokens_mask"]), strict=True):
        if not special:
            break
        found.insert(0, i)
    return found


def _insert_before(tokens: list[Token], where: Callable[[Token], bool], new: Iterable[Token]) -> None:
    """Inserts before the first token for which `where` holds, or at the end."""
    position = next((p for p, token in enumerate(tokens) if where(token)), len(tokens))
    tokens[position:position] = list(new)


def _finish(filled: Filled, edges: Iterable[tuple[Token, Token]] = ()) -> Layout:
    layout = Layout(ids=[max(token.id, 0) for token in filled.tokens])
    position = {id(token): p for p, token in enumerate(filled.tokens)}
    for p, token in enumerate(filled.tokens):
        if token.kind is not None:
            layout.placeholders[p] = token.kind
        if token.owner == "text":
            layout.text.append(p)
            first, stop = max(token.start, filled.start), min(token.end, filled.end)
            layout.spans.append((first - filled.start, stop - filled.start))
    layout.edges = [(position[id(dst)], position[id(src)]) for dst, src in edges]
    return layout


def plain(filled: Filled) -> Layout:
    """The tokens of the prompt and nothing else."""
    return _finish(filled)


def token_prepending(filled: Filled, placeholders: int = 1, source: str = "last") -> Layout:
    """TP: placeholders where the template says, else after the colon that introduces the text, fed from the last token.

    With source "text" from the last token of the text's last copy, blanks at the text's end aside.
    """
    new = [Token(-1, kind=PST) for _ in range(placeholders)]
    last = filled.tokens[-1]
    if source == "text":
        end = filled.start + len(filled.string[filled.start : filled.end].rstrip())
        last = [token for token in filled.tokens if token.owner != "special" and token.start < end][-1]
    colon = filled.string.rfind(":", filled.literal, filled.first)
    if filled.place is not None:
        place = filled.place
        _insert_before(filled.tokens, lambda token: token.owner != "special" and filled.anchor(token) >= place, new)
    elif colon >= 0:
        _insert_before(filled.tokens, lambda token: token.start >= colon + 1, new)
    else:
        _insert_before(filled.tokens, lambda token: token.kind is None and filled.anchor(token) >= filled.first, new)
    return _finish(filled, [(token, last) for token in new])


def blocks_of(sentences: Sequence[Span], k: int) -> list[Span]:
    """Characters of each run of k sentences, from the first's start to the last's end."""
    groups = [sentences[first : first + k] for first in range(0, len(sentences), k)]
    return [(group[0][0], group[-1][1]) for group in groups]


def hierarchical(
    filled: Filled, blocks: Sequence[Span], *, local: bool = True, whole: bool = True, source: str = "end"
) -> Layout:
    """HTP: one PST before each block (`local`), one B-PST for each block before the text (`whole`).

    A block whose characters no token overlaps (the text was cut before it) has no placeholders.
    """
    begins, ends = [], []
    for start, end in blocks:
        start, end = start + filled.start, end + filled.start
        words = [t for t in filled.tokens if t.owner in ("prompt", "text")]
        overlapping = [t for t in words if t.start < end and t.end > start]
        if overlapping:
            ends.append(overlapping[-1])
            own = [t for t in filled.tokens if t.owner == "text" and filled.anchor(t) >= start]
            begins.append(own[0] if own else None)
    return _by_block(filled, begins, ends, local, whole, source)


def every(filled: Filled, n: int, *, local: bool = True, whole: bool = True, source: str = "end") -> Layout:
    """HTP with n tokens of the text in each block, fewer in the last."""
    text = [token for token in filled.tokens if token.owner == "text"]
    begins = [token for at, token in enumerate(text) if at % n == 0]
    ends = [token for at, token in enumerate(text) if at % n == n - 1 or at == len(text) - 1]
    return _by_block(filled, begins, ends, local, whole, source)


def _by_block(
    filled: Filled, begins: Sequence[Token | None], ends: Sequence[Token], local: bool, whole: bool, source: str
) -> Layout:
    """Placeholders for blocks that begin before the one and end with the other token."""
    tokens = filled.tokens
    before = [Token(-1, kind=PST) for _ in begins]
    for summary, first in zip(before, begins, strict=True):
        _insert_before(tokens, lambda token, first=first: token is first, [summary])
    sources = list(ends)
    if source == "released":
        # the token before the next PST; for the last block the first token behind the text
        sources = [tokens[tokens.index(summary) - 1] for summary in before[1:]]
        text = [at for at, token in enumerate(tokens) if token.owner == "text"]
        sources.append(tokens[text[-1] + 1])
    edges = []
    if local:
        edges += list(zip(before, sources, strict=True))
    else:
        tokens[:] = [token for token in tokens if token.kind is None]
    if whole:
        front = [Token(-1, kind=BPST) for _ in begins]
        edges += list(zip(front, sources, strict=True))
        _insert_before(tokens, lambda t: t.owner == "text" or t.kind == PST, front)
    return _finish(filled, edges)


def shortened(filled: Filled, keep: int) -> Filled:
    """Only the first `keep` tokens of the text slot; every token of the prompt stays."""
    tokens, left = [], keep
    for token in filled.tokens:
        if token.owner == "text":
            left -= 1
            if left < 0:
                continue
        tokens.append(token)
    return Filled(filled.string, filled.literal, filled.start, filled.end, tokens, filled.first, filled.place)
