"""Methods and commands that are not Eddy's: put together by hand, with parts of their own, offered by a package."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from tests.command_line import run
from tests.comparison import TEXTS, embedder, exact, loaded
from tests.reference.double import AllDouble

from eddy_embed import Embedder, Method, methods
from eddy_embed.cli import plugins
from eddy_embed.errors import InvalidParameter, UnknownMethod
from eddy_embed.methods import registry
from eddy_embed.methods.registry import build
from eddy_embed.parts.layout import Layout
from eddy_embed.parts.readout import Readout
from langchain_eddy import EddyEmbeddings


@dataclass(frozen=True)
class Ranked(Readout):
    """Weights 1, 2, 3 .. to a power."""

    power: float = 2.0

    def weights(self, sequence, counted):
        ranks = np.arange(1, len(counted) + 1) ** self.power
        return counted, ranks / ranks.sum()


def ranked(power: float = 2.0, exit: int | None = -1) -> Method:
    """Later tokens more, by a power of their rank."""
    return build(ranked, {"power": power, "exit": exit}, layout=Layout(), readout=Ranked(exit=exit, power=power))


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))
    return methods.register(ranked)


def by_hand(power: float = 3.0) -> Method:
    return Method(layout=Layout("Passage: {text}"), readout=Ranked(power=power))


def naively(text: str, power: float) -> np.ndarray:
    """The llama family's tokenizer puts one special token in front; "Passage: " and the text are tokenized as one."""
    model, tokenizer = loaded("llama", exactly=True)
    encoded = tokenizer(f"Passage: {text}", return_tensors="pt", return_offsets_mapping=True)
    offsets = encoded.pop("offset_mapping")[0]
    with AllDouble():
        states = model.base_model(encoded["input_ids"]).last_hidden_state[0].detach().numpy()
    own = [at for at, (start, end) in enumerate(offsets.tolist()) if end > len("Passage: ") and end > start]
    total = sum((rank**power) * states[at] for rank, at in enumerate(own, start=1))
    return total / np.linalg.norm(total)


def test_a_method_by_hand_gives_what_it_says():
    e = embedder("llama", by_hand(), exactly=True)
    for text, vector in zip(TEXTS, exact(e, TEXTS), strict=True):
        assert np.abs(vector - naively(text, 3.0)).max() <= 1e-9
    assert e.encode_long(TEXTS[0], late=False).passages and not e.can_embed_spans
    assert "Ranked(" in str(e.explain(TEXTS[0])) and "power=3.0" in str(e.method)
    joined = by_hand() | methods.tempscale(0.5)
    assert np.abs(embedder("llama", joined).encode_document(TEXTS) - e.encode_document(TEXTS)).max() > 1e-3


def test_a_registered_method_is_a_word_like_any_other(registered):
    method = methods.parse("ranked:power=3+tempscale:tau=0.9")
    assert str(method) == "ranked:power=3+tempscale:tau=0.9" and methods.parse(str(method)) == method
    assert methods.names()[-1] == "ranked"
    assert methods.describe("ranked") == ("Later tokens more, by a power of their rank.", {"power": 2.0, "exit": -1})
    expected = embedder("llama", Method(layout=Layout(), readout=Ranked(power=3.0)))
    named = embedder("llama", "ranked:power=3.0")
    assert named.fingerprint == expected.fingerprint
    assert np.array_equal(named.encode_document(TEXTS), expected.encode_document(TEXTS))
    with pytest.raises(InvalidParameter, match="power='x' must be a number"):
        methods.parse("ranked:power=x")
    assert methods.register(ranked) is ranked, "a notebook's cell may be run twice"
    adapted = EddyEmbeddings(model_name="eddy-tiny", method="ranked:power=3.0")
    assert adapted.fingerprint == EddyEmbeddings(model_name="eddy-tiny", method=ranked(3.0)).fingerprint
    with pytest.raises(InvalidParameter, match="no name by which EddyEmbeddings could store"):
        EddyEmbeddings(model_name="eddy-tiny", method=by_hand())


def test_what_cannot_be_registered_is_refused(registered):
    def plain(exit: int = -1) -> Method: ...

    def bare(exit: int) -> Method: ...

    def choice(kind: Literal["a", "b"] = "a") -> Method: ...

    for function, says in (
        (plain, "'plain' is registered already, by eddy_embed.methods.plain"),
        (bare, "exit has no default"),
        (choice, r"kind is annotated .*Literal"),
        (lambda: Method(), "not '<lambda>'"),
    ):
        with pytest.raises(InvalidParameter, match=says):
            methods.register(function)
    assert methods.names()[-1] == "ranked"


# --- what installed packages offer

METHOD = '''
from eddy_embed.parts.layout import Layout
from eddy_embed.methods.registry import build
from eddy_embed.parts.readout import Readout

def tail(exit: int = -1):
    """The last token, behind a wording."""
    return build(tail, {"exit": exit}, layout=Layout("{text} means"), readout=Readout(exit=exit, pool="last"))
'''


def offer(folder: Path, name: str, code: str, group: str, points: str) -> None:
    """A package as it lies in site-packages."""
    (folder / f"{name}.py").write_text(code)
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{group}]\n{points}\n")


def test_a_package_offers_methods_and_is_named_where_it_does_not_hold_its_promise(registered, tmp_path, monkeypatch):
    points = "tail = tail_of_text:tail\nhead = tail_of_text:head\nother = tail_of_text:tail"
    offer(tmp_path, "tail_of_text", METHOD, registry.GROUP, points)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tail_of_text", raising=False)
    assert set(methods.names()) >= {"tail", "head", "other"}
    assert methods.describe("tail") == ("The last token, behind a wording.", {"exit": -1})
    assert str(Embedder("eddy-tiny", method="tail:exit=-2").method) == "tail:exit=-2"
    for name, says in (("head", "'tail_of_text:head', which cannot be loaded"), ("other", "which has the name 'tail'")):
        with pytest.raises(UnknownMethod, match=says):
            methods.parse(name)


COMMANDS = """
import typer

app = typer.Typer(help="Count things.")


@app.command()
def boats(number: int = 1) -> None:
    "Count boats."
    typer.echo(f"{number} boats")


@app.command()
def dogs() -> None:
    "Count dogs."


def wave(name: str) -> None:
    "Wave at somebody."
    typer.echo(f"hello {name}")
"""
POINTS = """count = counting:app
wave = counting:wave
lost = not_there:app
embed = counting:wave
"""


def test_a_package_offers_commands_and_help_lists_them_and_what_is_broken(capsys, monkeypatch, tmp_path) -> None:
    offer(tmp_path, "counting", COMMANDS, plugins.GROUP, POINTS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "counting", raising=False)
    assert run(capsys, monkeypatch, "count", "boats", "--number", "3")[:2] == (0, "3 boats\n")
    assert run(capsys, monkeypatch, "wave", "Ann")[:2] == (0, "hello Ann\n")
    status, out, _ = run(capsys, monkeypatch, "--help")
    assert status == 0
    for said in ("Count things.", "Wave at somebody.", "Cannot be loaded: No module named 'not_there'."):
        assert said in out
    assert out.count(" embed ") == 1, "a command of the engine's was taken"
    status, _, err = run(capsys, monkeypatch, "lost")
    assert status == 1
    assert err.startswith("eddy: 'lost' is offered as 'not_there:app', which cannot be loaded")
