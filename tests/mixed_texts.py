"""Texts of every kind that a tokenizer may stumble on, made from a seed."""

from __future__ import annotations

import random

from tests.families import PROSE

_PIECES = (
    *("def f(x):\n\treturn x  # 2**10", "if (a != b) { c += 1; }\r\n", "SELECT * FROM t WHERE id=42;"),
    *('{"key": [1, 2]}', "3.14159", "1234567890", "1,000,000", "٣٤٥", "²³½", "Ⅷ", "0x1F", "007"),
    *("2024-11-05T12:34:56Z", "🙂", "👩‍👩‍👧‍👦", "🇫🇷", "👍🏽", "❤️"),
    *("日本語のテキスト。", "中文，標點！", "한국어 문장", "カタカナ"),
    *("ﾊﾝｶｸ", "שלום עולם", "مرحبا بالعالم", "‏עברית‎", "नमस्ते दुनिया", "ไทยไม่เว้นวรรค", "Привет, мир"),
    *("Ελληνικά", "ქართული", "é", "e\u0301", "n\u0303a\u0308o\u0302", "Å", "A\u030a", "ﬁ", "Straße"),
    *("İstanbul", "ſ", "ẞ", "Ǆ", "ﷺ", "Z͑ͫa̴l̷g̶o", "\x00", "\x01\x02", "\x07", "\x1b[31m", "\x7f"),
    *("\x85", "\u200b", "\u2060", "\ufeff", "\ufffd", "\u2028", "\u3000", " ", "  ", "   ", "    ", "\t"),
    *("\t\t", "\n", "\n\n", "\n \n", " \n", "\r", "\r\n", "\xa0", "\u2003", "\v", "\f", " \t ", "<s>"),
    *("</s>", "<unk>", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<bos>", "<pad>", "<0x0A>"),
    *("[INST]", "<think>", "▁", "▁▁", "Ġ", "Ċ", "<", ">", "|", "_", "--", "...", "…", "''", "“quoted”"),
    *("don't", "I'LL", "we’re", "it's", "x'S", "https://example.org/a?b=c&d=%20", "user@example.org"),
    *("C:\\temp\\x", "#tag", "$5.00", "a_b-c.d", "CamelCaseWord", "𝕬𝖇𝖈", "\U0001f9ff", "\U000e0041"),
    *("\ue000", "ꙮ", "𓀀", "\U0010fffd", "ab\u00adcd"),
)


def mixed_texts(number: int, seed: int = 0) -> list[str]:
    """That many texts, none of them empty."""
    draw = random.Random(seed)
    words = PROSE.read_text(encoding="utf-8").split()
    texts = list(_PIECES[:number])
    while len(texts) < number:
        parts = []
        for _ in range(draw.randint(1, 12)):
            kind = draw.random()
            if kind < 0.4:
                at = draw.randrange(len(words))
                parts.append(" ".join(words[at : at + draw.randint(1, 6)]))
            elif kind < 0.85:
                parts.append(draw.choice(_PIECES))
            elif kind < 0.93:
                parts.append(draw.choice(" \t\n") * draw.randint(1, 20))
            else:
                parts.append("".join(_character(draw) for _ in range(draw.randint(1, 5))))
        texts.append(draw.choice(("", " ", " ", "\n")).join(parts))
    return texts


def _character(draw: random.Random) -> str:
    """Any character but half of a pair."""
    while True:
        code = draw.choice((draw.randrange(0x80), draw.randrange(0x3000), draw.randrange(0x110000)))
        if not 0xD800 <= code < 0xE000:
            return chr(code)
