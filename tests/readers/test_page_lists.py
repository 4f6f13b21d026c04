"""Tables of contents and indexes are found in a text; prices, results and numbered lists are none."""

from __future__ import annotations

import pytest

from readers_eddy.page_lists import page_lists

TIDES = "The moon pulls the water of the sea towards it.\n\n"
LEADERS = "1 Tides . . . . . . . 1\n1.1 Spring tides. . . . 2\n2 Boats . . . . . 12\n3 Nets . . . . . . 30"
LETTERS = "A\n\nanchor . . . . 12, 90\naft . . . . 3\n\nB\n\nbay . . . . 5\nboat . . . . . . 1\nbuoy . . . 7"
NAMES = "anchor, 12, 34–36\nbay, 3\nboat, 7, 9\nbuoy, 12\nferry, 8\nharbour, 4, 5\nherring, 2\nlamp, 90\nmoon, 1"
CHAPTERS = "# Contents\n\nTides 1\n\nSpring tides 9\n\nBoats 14\n\nNets 30"
BODY = "Tides of the coast\n\nTides\n\nSpring tides\n\nBoats\n\nNets\n\n"
BODY += "An anchor lies aft in the bay; boat, buoy, ferry, harbour, herring, lamp and moon.\n"
NUMBERED = "\n".join(f"{number}.{number} Tides of the coast {7 * number}" for number in range(1, 10))


@pytest.mark.parametrize(
    "listed", [LEADERS, LEADERS.replace(". ", "."), LETTERS, NAMES, NAMES.replace("\n", " "), CHAPTERS, NUMBERED]
)
def test_lists_of_page_numbers_are_found(listed: str) -> None:
    text = f"{TIDES}{listed}\n\n{BODY}"
    ((start, end),) = page_lists(text, 90)
    assert text[start:end] in listed
    assert len(text[start:end]) > 0.75 * len(listed)
    assert page_lists(text, 8) == (), "a number is above the last page"
    assert page_lists(f"{TIDES}{listed}\n\n{TIDES}", 90) == (), "what it names is nowhere"


@pytest.mark.parametrize(
    "text",
    [
        TIDES * 5,
        "Soup . . . . 5\nHerring . . . . 12\nBread . . . . 3\nAle . . . . 2\nCake . . . . 4",
        "Soup . . . . 5.50\nBread . . . . 6.50\nCake . . . . 7.50\nHerring . . . . 12.50",
        "\n".join(f"Herring sold in {year}" for year in range(1990, 2005)),
        "# History\n\n" + "\n".join(f"{at}. The pier fell in {1700 + 9 * at}" for at in range(1, 10)) + f"\n\n{TIDES}",
        "Ale ........ 2\nBread ........ 3\nCake ........ 4\nHerring ........ 12\nSoup ........ 5\n\nOpen from noon.",
        "\n".join(f"- {name}, On tides, {1930 + at}" for at, name in enumerate(("Adler", "Brand", "Cole", "Drew") * 2)),
        "\n".join(f"| bay, {number} | {number} |" for number in range(20)),
        "\n".join(f"Score of {name}: {number}" for name, number in zip("abcdefghij", range(10), strict=True)),
        "In May 1990, 3 boats and in June 1991, 4 boats sailed, and in July 1992, 5 of them sank in a storm, 1993.",
    ],
)
def test_other_lists_are_none(text: str) -> None:
    assert page_lists(text) == ()
