"""Texts to token sequences: one template, its copies of the text, its placeholders, a rewritten text."""

from __future__ import annotations

import functools
from collections.abc import Sequence as Seq
from dataclasses import dataclass, fields, replace
from string import Formatter
from typing import Literal, get_args

import numpy as np

from eddy_embed.errors import InvalidParameter
from eddy_embed.text.sequence import PLACEHOLDER_ID, Role, TokenSequence, last_overlapping, owners
from eddy_embed.text.tokenizer import Tokens
from eddy_embed.utils.arrays import Ints
from eddy_embed.utils.checks import check_choice, check_count

Revision = Literal["quoted", "sentences"]


@dataclass(frozen=True, eq=False)
class RewrittenText:
    """A rewritten text. A mark that was added stands for the character before it.

    Attributes:
        string: The rewritten text.
        starts: For each of its characters, the first one of the text that it stands for, shape (characters,).
        ends: The one after the last, shape (characters,).
        spans: Rows (start, end) of the sentences in `string`, None if not needed, shape (sentences, 2).
    """

    string: str
    starts: Ints
    ends: Ints
    spans: Ints | None = None

    def source(self, starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
        """Return first character of the text, and the one after the last, that tokens of `string` stand for."""
        top = len(self.string) - 1
        first = self.starts[np.clip(starts, 0, top)]
        last = np.where(ends > starts, self.ends[np.clip(ends - 1, 0, top)], first)
        return first, last


def revise(revision: Revision, text: str, sentences: Ints | None) -> RewrittenText:
    """Rewrite a text that is not blank, with sentences of shape (sentences, 2), needed for "sentences".

    "quoted": a period after it unless it ends in one of . ? " ', single quotation marks for double ones, a period for a
    question mark at its end (Token Prepending). "sentences": each sentence with a period after it unless it ends in one
    of . ! ? ", one blank between two (HTP).
    """
    if revision == "sentences":
        return _by_sentence(text, sentences)
    added = "" if text[-1] in ".?\"'" else "."
    string = (text + added).replace('"', "'")
    if string[-1] == "?":
        string = string[:-1] + "."
    starts = np.minimum(np.arange(len(string)), len(text) - 1)
    # A period that is added to the last sentence belongs to it.
    spans = None if sentences is None else np.where(sentences == len(text), len(string), sentences)
    return RewrittenText(string, starts, starts + 1, spans)


def _by_sentence(text: str, sentences: Ints | None) -> RewrittenText:
    parts: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    spans: list[tuple[int, int]] = []
    for begin, stop in [(0, len(text))] if sentences is None or len(sentences) == 0 else sentences.tolist():
        sentence = text[begin:stop].strip()
        if not sentence:
            continue
        first = begin + text[begin:stop].index(sentence)
        if parts:
            parts.append(" ")
            starts.append(ends[-1])
            ends.append(first)
        last = first + len(sentence)
        added = [] if sentence[-1] in '.!?"' else [last - 1]
        origin = [*range(first, last), *added]
        spans.append((len(starts), len(starts) + len(origin)))
        parts.append(sentence + "." * len(added))
        starts += origin
        ends += [index + 1 for index in origin]
    return RewrittenText(
        "".join(parts), np.array(starts, np.int64), np.array(ends, np.int64), np.array(spans, np.int64)
    )


def block_sources(before: Ints, own: Ints, length: int) -> Ints:
    """Return the tokens whose states the placeholders of HTP's blocks get, from the token that each block begins with.

    It is the one before the next block's placeholders; for the last block the first token after the text's `own`, or
    the last of the sequence of this length.
    """
    after = int(own[-1]) + 1 if len(own) else 0
    return np.append(before[1:] - 1, min(after, length - 1))


BlockSource = Literal["end", "released"]


@dataclass(frozen=True, eq=False)
class PlaceholderPositions:
    """Placeholders to insert: before which token, as what, and the token whose state they get; shape (inserts,)."""

    before: Ints
    roles: Ints
    sources: Ints

    @classmethod
    def none(cls) -> PlaceholderPositions:
        """Return nothing to insert."""
        return cls(*(np.empty(0, np.int64) for _ in range(3)))

    @classmethod
    def of_text(cls, count: int, before: int, source: int) -> PlaceholderPositions:
        """Return adjacent placeholders that all get one state."""
        return cls(*(np.full(count, value, np.int64) for value in (before, int(Role.PST), source)))


@dataclass(frozen=True)
class Blocks:
    """Placeholders of Hierarchical Token Prepending: K consecutive sentences, or N consecutive tokens, are a block.

    Attributes:
        sentences: K, the sentences of a block.
        every: N, the tokens of a block instead; "auto" for a text's tokens divided by its sentences, at least 1.
        local: Whether there is a PST before every block.
        summary: Whether the B-PSTs of all blocks come before the first block.
        source: The state that a block's placeholders get: "end", of the last token that overlaps its characters, or
            "released" (`released.block_sources`).

    Raises:
        InvalidParameter: K or N is below 1, both are given, neither kind of placeholder is wanted, or the source is
            unknown.
    """

    sentences: int = 1
    every: int | Literal["auto"] | None = None
    local: bool = True
    summary: bool = True
    source: BlockSource = "end"

    def __post_init__(self) -> None:
        check_count("k", self.sentences)
        if isinstance(self.every, str):
            check_choice("every", self.every, ["auto"])
        else:
            check_count("every", self.every)
        if self.every is not None and self.sentences != 1:
            raise InvalidParameter(f"k={self.sentences} and every={self.every}: blocks are of sentences or of tokens")
        if not (self.local or self.summary):
            raise InvalidParameter("blocks need PST, B-PST or both; local_only and global_only exclude each other")
        check_choice("source", self.source, get_args(BlockSource))

    @property
    def needs_sentences(self) -> bool:
        """Whether blocks depend on the text's sentences."""
        return not isinstance(self.every, int)

    def settled(self, tokens: int, sentences: int) -> Blocks:
        """Return the same blocks with "auto" replaced by tokens for each block of such a text."""
        return replace(self, every=max(1, tokens // max(sentences, 1))) if self.every == "auto" else self

    def count(self, tokens: int, sentences: int) -> int:
        """Return placeholders of a text of so many tokens and sentences."""
        every = self.settled(tokens, sentences).every
        blocks = -(-tokens // every) if isinstance(every, int) else -(-sentences // self.sentences)
        return blocks * (int(self.local) + int(self.summary))

    def room(self, budget: int) -> int:
        """Return most tokens of one sentence that fit in a budget with its placeholders; for settled blocks."""
        added = self.count(1, 1)
        return (budget - added) * self.every // (self.every + added) if isinstance(self.every, int) else budget - added

    def inserts(self, tokens: Tokens, own: Ints, sentences: Ints | None, length: int) -> PlaceholderPositions:
        """Return the placeholders of a sequence, by the text's `own` tokens and its sentences in the prompt."""
        assert sentences is not None or not self.needs_sentences
        every = self.settled(len(own), 0 if sentences is None else len(sentences)).every
        if isinstance(every, int):
            before, sources = own[::every], np.append(own[every - 1 :: every], own[-1:])[: -(-len(own) // every)]
        else:
            before, sources = self._by_sentence(tokens, np.zeros((0, 2), np.int64) if sentences is None else sentences)
        if self.source == "released" and len(before):
            sources = block_sources(before, own, length)
        first = np.full(len(before), own[0] if len(own) else len(tokens.ids), np.int64)
        kinds = [(first, Role.BPST)] * self.summary + [(before, Role.PST)] * self.local
        return PlaceholderPositions(
            before=np.concatenate([index for index, _ in kinds]),
            roles=np.repeat([int(role) for _, role in kinds], len(before)),
            sources=np.tile(sources, len(kinds)),
        )

    def _by_sentence(self, tokens: Tokens, sentences: Ints) -> tuple[Ints, Ints]:
        """Return first and last token of each block."""
        firsts = sentences[:: self.sentences, 0]
        lasts = np.append(sentences[self.sentences - 1 :: self.sentences, 1], sentences[-1:, 1])[: len(firsts)]
        spans = np.stack([firsts, lasts], axis=1)
        sources = last_overlapping(tokens.starts, tokens.ends, spans)
        owner = owners(tokens.starts, tokens.ends, spans)
        owned, begins = np.unique(owner[owner >= 0], return_index=True)
        before = sources.copy() + 1
        before[owned] = np.flatnonzero(owner >= 0)[begins]
        covering = sources >= 0
        return before[covering], sources[covering]


@dataclass(frozen=True)
class Repetition:
    """Number and form of the copies, before which there are only the tokenizer's specials and an instruction.

    Attributes:
        times: Number of copies of the text.
        joiner: String between the copies, which are then tokenized together; None: the ids of the tokenized text are
            repeated.
        piece: Tokens of a piece: the text is read once, and each piece is repeated by itself, in a sequence of its own;
            None: the whole text is repeated.
        cut: Whether truncation, if chosen, cuts the end of the last copy instead of the text itself.

    Raises:
        InvalidParameter: A number is below 1, or pieces are to be joined by a string.
    """

    times: int = 2
    joiner: str | None = None
    piece: int | None = None
    cut: bool = False

    def __post_init__(self) -> None:
        check_count("k", self.times)
        check_count("piece", self.piece)
        if self.piece is not None and self.joiner is not None:
            raise InvalidParameter(
                f"piece={self.piece} repeats the ids of a piece, which joiner={self.joiner!r} would change; "
                "leave one out"
            )

    @property
    def template(self) -> str:
        """The wording that is tokenized."""
        if self.joiner is None:
            return "{text}"
        return self.joiner.replace("{", "{{").replace("}", "}}").join(["{text}"] * self.times)

    def apply(self, sequence: TokenSequence) -> TokenSequence:
        """Return the sequence with its text's tokens repeated, marked so that the first copy is read."""
        if self.joiner is None and self.piece is None:
            text = sequence.text
            after = np.arange(text[-1] + 1, len(sequence))
            order = np.concatenate([np.arange(text[-1] + 1), *[text] * (self.times - 1), after])
            copies = sequence.copies[order]
            copies[text[0] : text[0] + self.times * len(text)] = np.repeat(np.arange(self.times), len(text))
            sequence = _picked(sequence, order, copies)
        return replace(sequence, first=True)


def shortened(sequence: TokenSequence, length: int) -> TokenSequence:
    """Return the first `length` tokens of a sequence without edges."""
    return _picked(sequence, np.arange(length), sequence.copies[:length])


@dataclass(frozen=True, eq=False)
class RepeatedPiece:
    """A piece of a text: a sequence of `front` specials and the copies, where it starts in the text's own, its size."""

    sequence: TokenSequence
    start: int
    size: int
    front: int


def pieces(sequence: TokenSequence, repetition: Repetition) -> list[RepeatedPiece]:
    """Return the pieces of a text's own sequence, in order, each after the specials that precede the text."""
    size = repetition.piece or len(sequence)
    front = np.flatnonzero(sequence.roles == Role.SPECIAL)
    text = sequence.text
    repeated = []
    for first in range(0, len(text), size):
        run = text[first : first + size]
        order = np.concatenate([front, *[run] * repetition.times])
        copies = np.concatenate([np.full(len(front), -1, np.int64), np.repeat(np.arange(repetition.times), len(run))])
        repeated.append(RepeatedPiece(_picked(sequence, order, copies), int(run[0]), len(run), len(front)))
    return repeated


def _picked(sequence: TokenSequence, order: Ints, copies: Ints) -> TokenSequence:
    return replace(
        sequence,
        ids=sequence.ids[order],
        roles=sequence.roles[order],
        starts=sequence.starts[order],
        ends=sequence.ends[order],
        copies=copies,
    )


TextRole = Literal["document", "query"]
TextSource = Literal["last", "text"]
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True)
class Layout:
    """How a text is laid out as tokens.

    Attributes:
        template: Wording with one `{text}` or more, and perhaps a `{placeholder}`.
        query_template: Wording for queries, where it differs.
        others: Further wordings; a text is run in each, and its vector is the mean over all.
        instructed: Wording around an instruction, with `{instruction}` and `{prompt}`.
        placeholders: Number of PST placeholders (Token Prepending): at the wording's `{placeholder}`, else after the
            colon that introduces the text, or right before it without a colon.
        source: The token whose state they get: the sequence's "last", or the last of the "text" (of its last copy,
            trailing blanks excepted).
        blocks: Placeholders by blocks of sentences instead.
        end: Whether the tokenizer's end token follows at the end.
        revision: How the text is rewritten first; None: not at all.
        repetition: Several copies of the bare text, of which the first is read.
        start: The token ahead of a sequence where the tokenizer puts none: "auto", <|endoftext|>, else the model's
            start token, else its end token; None; or a token of the vocabulary, which also replaces what the
            tokenizer puts there.

    Raises:
        InvalidParameter: A template has no `{text}`, unknown fields, unbalanced braces, or a `{placeholder}` for none;
            or a negative number of placeholders; or both kinds at once; or an unknown source; or blocks in a template
            with several copies.
    """

    template: str = "{text}"
    query_template: str | None = None
    others: tuple[str, ...] = ()
    instructed: str = "{instruction} {prompt}"
    placeholders: int = 0
    source: TextSource = "last"
    blocks: Blocks | None = None
    end: bool = False
    revision: Revision | None = None
    repetition: Repetition | None = None
    start: str | None = "auto"

    def __post_init__(self) -> None:
        wordings = (self.template, self.query_template or "{text}", *self.others)
        for template in wordings:
            _check_fields(template, marks=int(self.placeholders > 0))
        if sorted(_fields(self.instructed)) != ["instruction", "prompt"]:
            raise InvalidParameter(f"template {self.instructed!r} needs {{instruction}} and {{prompt}}, once each")
        check_count("placeholders", self.placeholders, least=0)
        check_choice("source", self.source, get_args(TextSource))
        if self.revision is not None:
            check_choice("revision", self.revision, get_args(Revision))
        if self.placeholders and self.blocks:
            raise InvalidParameter("one kind of placeholder at a time: by text (tp) or by block (htp)")
        if self.blocks and any(_fields(template).count("text") > 1 for template in wordings):
            raise InvalidParameter("blocks (htp) divide a text that stands there once, and this wording holds it twice")
        bare = None if self.repetition is None else Layout(instructed=self.instructed, start=self.start)
        if bare is not None and replace(self, repetition=None) != bare:
            raise InvalidParameter(
                "a repeated text stands alone: attention to its first copy must come from the text itself, so it goes "
                "with no template, no placeholders and no end token"
            )

    @property
    def chosen(self) -> dict[str, tuple[str, ...]]:
        """The parts in which it differs from the bare text, and their fields."""
        parts: dict[str, tuple[str, ...]] = {
            "template": ("template", "query_template", "others", "end"),
            "placeholders": ("placeholders", "source", "blocks"),
        }
        grouped = {name for names in parts.values() for name in names}
        parts |= {field.name: (field.name,) for field in fields(self) if field.name not in grouped}
        bare = {field.name: field.default for field in fields(self)}
        return {part: names for part, names in parts.items() if any(getattr(self, n) != bare[n] for n in names)}

    def joined(self, other: Layout) -> Layout:
        """Return this layout with what another one chooses."""
        return replace(self, **{n: getattr(other, n) for names in other.chosen.values() for n in names})

    @property
    def needs_sentences(self) -> bool:
        """Whether the text has to be segmented before it can be laid out."""
        return self.revision == "sentences" or (self.blocks is not None and self.blocks.needs_sentences)

    @property
    def may_end(self) -> bool:
        """Whether an end token may follow the text: always, or because a state after the text is read."""
        return self.end or (self.blocks is not None and self.blocks.source == "released")

    @property
    def wordings(self) -> list[Layout]:
        """The same layout once for each of its wordings."""
        if not self.others:
            return [self]
        more = [replace(self, template=template, query_template=None, others=()) for template in self.others]
        return [replace(self, others=()), *more]

    def fill(self, text: str, role: TextRole, instruction: str | None, sentences: Ints | None = None) -> PromptLayout:
        """Write a text that is not blank into the wording for its role, with an instruction around the prompt, if any.

        `sentences` are rows (start, end) of its sentences, shape (sentences, 2), needed if `needs_sentences`.
        """
        revised = None
        if self.revision is not None:
            revised = revise(self.revision, text, sentences)
            text, sentences = revised.string, revised.spans
        template = (self.query_template or self.template) if role == "query" else self.template
        if self.repetition is not None:
            template = self.repetition.template
        head, tail = _around_prompt(self.instructed, instruction) if instruction else ("", "")
        string, introduced = head, None
        slots: list[tuple[int, int]] = []
        marked = "placeholder" in _fields(template)
        for literal, field in template_fields(template):
            colon = literal.rfind(":") if field and not slots and not marked else -1
            if colon >= 0:
                introduced = len(string) + colon + 1
            string += literal
            if field == "placeholder":
                introduced = len(string)
            elif field:
                slots.append((len(string), len(string) + len(text)))
                string += text
        string += tail
        if self.revision == "quoted":
            # Slots may then begin before the string, where blanks of their texts were cut off.
            blank = len(string) - len(string.lstrip())
            string, introduced = string.strip(), introduced and introduced - blank
            slots = [(start - blank, end - blank) for start, end in slots]
        return PromptLayout(string, np.array(slots, np.int64), introduced, sentences, revised)

    def arrange(
        self, prompt: PromptLayout, tokens: Tokens, prefix: Ints, end: int | None = None, suffix: Seq[int] = ()
    ) -> TokenSequence:
        """Return the sequence of a filled prompt's tokens, specials and placeholders, with offsets in the text.

        Args:
            prompt: The filled prompt.
            tokens: Its tokens, with offsets in the prompt.
            prefix: Ids of the specials that stand first.
            end: Id of the end token, None for none; if the layout needs one only to have a token after the text, it is
                left out where there is one.
            suffix: Ids of the specials that the tokenizer puts last, if they are wanted; they replace the end token.
        """
        copies = owners(tokens.starts, tokens.ends, prompt.slots)
        straddling = (copies >= 0) & (tokens.starts < prompt.slots[np.maximum(copies, 0), 0])
        for index in np.flatnonzero(straddling).tolist():
            if prompt.wording_first(int(tokens.starts[index]), int(tokens.ends[index]), int(copies[index])):
                copies[index] = -1
        is_text = copies >= 0
        slot_starts, slot_ends = prompt.slots[np.maximum(copies, 0)].T
        starts = np.maximum(tokens.starts, slot_starts) - slot_starts
        ends = np.minimum(tokens.ends, slot_ends) - slot_starts
        if prompt.revised is not None:
            starts, ends = prompt.revised.source(starts, ends)
        plain = TokenSequence(
            ids=tokens.ids,
            roles=np.where(is_text, int(Role.TEXT), int(Role.PROMPT)),
            starts=np.where(is_text, starts, -1),
            ends=np.where(is_text, ends, -1),
            copies=copies,
            edges=np.empty((0, 2), np.int64),
        )
        text = np.flatnonzero(is_text)
        after = np.array(suffix, np.int64)
        if not len(after) and end is not None and (self.end or (len(text) and int(text[-1]) == len(tokens.ids) - 1)):
            after = np.array([end], np.int64)
        plain = _between(plain, _NONE, after)
        sequence = _insert(plain, self._placeholders(prompt, tokens, text, len(plain)), prefix)
        return self.repetition.apply(sequence) if self.repetition is not None and len(text) else sequence

    def _placeholders(self, prompt: PromptLayout, tokens: Tokens, own: Ints, length: int) -> PlaceholderPositions:
        if self.blocks is not None:
            moved = None if prompt.sentences is None else prompt.sentences + prompt.slots[0, 0]
            return self.blocks.inserts(tokens, own, moved, length)
        if not self.placeholders:
            return PlaceholderPositions.none()
        before = int(own[0]) if len(own) else len(tokens.ids)
        if prompt.introduced is not None:
            before = int(np.searchsorted(tokens.starts, prompt.introduced, side="left"))
            # A token across the place stands before it, unless it brings only a blank from there.
            if before and tokens.ends[before - 1] > prompt.introduced:
                before -= int(prompt.string[tokens.starts[before - 1] : prompt.introduced].isspace())
        source = length - 1
        if self.source == "text":
            source = max(int(last_overlapping(tokens.starts, tokens.ends, prompt.visible[-1:])[0]), 0)
        return PlaceholderPositions.of_text(self.placeholders, before, source)


@dataclass(frozen=True, eq=False)
class PromptLayout:
    """A filled template.

    Attributes:
        string: What is tokenized.
        slots: Rows (start, end) of the copies of the text, in characters of `string`, shape (copies, 2).
        introduced: Character before which placeholders stand, after the colon that introduces the first copy if the
            wording does not say; None without a colon.
        sentences: Rows (start, end) of the sentences, in characters of a copy, shape (sentences, 2).
        revised: The rewritten text of a copy, None if it is the text as it is.
    """

    string: str
    slots: Ints
    introduced: int | None
    sentences: Ints | None = None
    revised: RewrittenText | None = None

    @property
    def visible(self) -> Ints:
        """Rows (start, end) of the copies without trailing blanks, shape (copies, 2)."""
        start, end = np.maximum(self.slots[-1], 0)
        blank = len(self.string[start:end]) - len(self.string[start:end].rstrip())
        return np.asarray(self.slots - np.array([0, blank]))

    def wording_first(self, start: int, end: int, slot: int) -> bool:
        """Return whether a token that reaches into a slot begins with the wording's characters, but blanks."""
        border = int(self.slots[slot, 0])
        return not (self.string[start:border].isspace() and self.string[border:end].strip())


def _check_fields(template: str, marks: int) -> None:
    names = _fields(template)
    if names.count("text") < 1 or set(names) - {"text", "placeholder"}:
        raise InvalidParameter(f"template {template!r} needs {{text}} and no other field")
    if names.count("placeholder") > marks:
        raise InvalidParameter(f"template {template!r} may have one {{placeholder}}, and only as prompt= of tp")


def _fields(template: str) -> list[str]:
    return [field for _, field in template_fields(template) if field]


@functools.lru_cache(maxsize=256)
def template_fields(template: str) -> tuple[tuple[str, str], ...]:
    """Return the literal text ahead of each field, and the field's name, "" for none."""
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise InvalidParameter(f"template {template!r} is malformed: {error}; write a brace as {{{{ or }}}}") from None
    for _, field, form, conversion in parts:
        if field == "" or form or conversion:
            raise InvalidParameter(
                f"template {template!r} has a field without a name, or one with a format; name it only"
            )
    return tuple((literal, field or "") for literal, field, _, _ in parts)


def _around_prompt(instructed: str, instruction: str) -> tuple[str, str]:
    head, tail = "", None
    for literal, field in template_fields(instructed):
        written = literal + (instruction if field == "instruction" else "")
        head, tail = (head + written, tail) if tail is None else (head, tail + written)
        if field == "prompt":
            tail = ""
    return head, tail or ""


def _between(sequence: TokenSequence, before: Ints, after: Ints) -> TokenSequence:
    """Return the sequence with specials before and after it."""
    if not len(before) and not len(after):
        return sequence

    def around(values: Ints, special: int) -> Ints:
        return np.concatenate([np.full(len(before), special), values, np.full(len(after), special)])

    return replace(
        sequence,
        ids=np.concatenate([before, sequence.ids, after]),
        roles=around(sequence.roles, int(Role.SPECIAL)),
        starts=around(sequence.starts, -1),
        ends=around(sequence.ends, -1),
        copies=around(sequence.copies, -1),
        edges=sequence.edges + len(before),
    )


def _insert(plain: TokenSequence, inserts: PlaceholderPositions, prefix: Ints) -> TokenSequence:
    specials = len(prefix)
    if not len(inserts.before):  # as most queries have it
        return _between(plain, prefix, _NONE)
    order = np.argsort(inserts.before, kind="stable")
    before, roles, sources = inserts.before[order], inserts.roles[order], inserts.sources[order]
    moved = np.arange(len(plain)) + np.searchsorted(before, np.arange(len(plain)), side="right") + specials
    placed = before + np.arange(len(before)) + specials

    def spread(values: Ints, special: int, placeholder: Ints | int) -> Ints:
        out = np.full(specials + len(plain) + len(before), special, np.int64)
        out[moved] = values
        out[placed] = placeholder
        return out

    ids = spread(plain.ids, 0, PLACEHOLDER_ID)
    ids[:specials] = prefix
    return TokenSequence(
        ids=ids,
        roles=spread(plain.roles, int(Role.SPECIAL), roles),
        starts=spread(plain.starts, -1, -1),
        ends=spread(plain.ends, -1, -1),
        copies=spread(plain.copies, -1, -1),
        edges=np.stack([placed, moved[sources] if len(sources) else placed], axis=1),
    )
