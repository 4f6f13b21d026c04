"""Long texts of the sorts that people have, made here: each with what is hard about it."""

from __future__ import annotations

GERMAN = (
    "Am 3. Oktober kam die Fähre wieder. Dr. Brandt zahlte z. B. 3,50 Mark für den Kaffee! „Zu teuer“, sagte er. "
    "Der Nebel hob sich gegen Mittag; niemand wunderte sich darüber. "
)
CHINESE = "河水在夜里上涨。到早上，桥不见了！谁来送信呢？“没有人问磨坊主。”他说。他有一条船，但是没有桨。"
MIXED = (
    GERMAN + CHINESE + "The ferry turned back at noon. \u201cПочему?\u201d спросил он. Nobody knew. 🙂 船又回来了。\n\n"
)
TRANSCRIPT = "".join(
    f"[00:{minute:02}:05] ANNA: Did the ferry leave, Dr. Hale? I heard nothing.\n"
    f"[00:{minute:02}:17] Mr. Hale: It left at 6 p.m. yesterday. Nobody told me.\n"
    for minute in range(20)
)
MARKDOWN = """# Tides

The moon pulls the water of the sea. Twice a day the harbour fills.

## Measuring

Put a staff into the ground and read it.

```python
# no heading: a comment
level = staff.read()  # in centimetres. Twice.
```

| hour | level |
|------|-------|
| 6    | 120   |
| 12   | 340   |

### Errors

- Waves. They move the float.
- Wind.

The lamp
--------

It was lit before the tide came in.

# Empty

# Bread

Bread needs flour, water and salt. The dough rests overnight.
"""
BOOK = "THE LAMP\n\nby nobody\n\n" + "".join(
    f"PART {part}\n\n"
    + "".join(
        f"Chapter {number}. The {name}\n\nIt was late when the keeper of number {number} came home. He was tired. "
        "The stairs were dark, and the lamp was out again.\n\nNobody asked him why.\n\n"
        for number, name in ((1, "Boat"), (2, "Storm"))
    )
    for part in ("ONE", "TWO")
)
SENTENCE = "and so the keeper went on " * 3_334
LINES = "\n".join(["buoy"] * 50_000)

TEXTS = {
    "german": GERMAN * 6,
    "chinese": CHINESE * 9,
    "mixed": MIXED * 4,
    "transcript": TRANSCRIPT,
    "markdown": MARKDOWN,
    "book": BOOK,
    "one sentence": SENTENCE[:5_000],
    "lines": LINES[:3_000],
}
