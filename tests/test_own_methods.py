"""Methods that are not Eddy's: put together by hand, with parts of their own, registered, offered by a package."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from tests.comparison import TEXTS, embedder, exact, loaded
from tests.processes import run_code
from tests.reference.double import AllDouble

from eddy_embed import Method, methods
from eddy_embed.errors import IncompatibleMethods, InvalidParameter, UnknownMethod
from eddy_embed.methods import registry
from eddy_embed.methods.registry import build
from eddy_embed.parts.layout import Layout
from eddy_embed.parts.readout import Readout


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
    assert e.encode_long(TEXTS[0], late=False).passages
    with pytest.raises(IncompatibleMethods, match="late=False"):
        e.encode_long(TEXTS[0], late=True)
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


PACKAGE = '''
from eddy_embed.parts.layout import Layout
from eddy_embed.methods.registry import build
from eddy_embed.parts.readout import Readout

def tail(exit: int = -1):
    """The last token, behind a wording."""
    return build(tail, {"exit": exit}, layout=Layout("{text} means"), readout=Readout(exit=exit, pool="last"))
'''


def offer(folder: Path, points: str, code: str = PACKAGE) -> None:
    """A package as it lies in site-packages."""
    (folder / "tail_of_text.py").write_text(code)
    (folder / "tail_of_text-1.0.dist-info").mkdir()
    (folder / "tail_of_text-1.0.dist-info" / "METADATA").write_text("Name: tail-of-text\nVersion: 1.0\n")
    (folder / "tail_of_text-1.0.dist-info" / "entry_points.txt").write_text(f"[{registry.GROUP}]\n{points}\n")


@pytest.mark.slow
def test_an_installed_package_offers_methods(tmp_path):
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from eddy_embed import Embedder, methods; assert methods.names()[-1] == 'tail'\n"
        "print(methods.describe('tail')[0], Embedder('eddy-tiny', method='tail:exit=-2').method)"
    )
    offer(tmp_path, "tail = tail_of_text:tail")
    child = run_code(code, tmp_path)
    assert child.returncode == 0, child.stderr
    assert child.stdout == "The last token, behind a wording. tail:exit=-2\n"


def test_a_package_that_does_not_hold_its_promise_is_named(tmp_path, monkeypatch):
    offer(tmp_path, "tail = tail_of_text:head\nother = tail_of_text:tail")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tail_of_text", raising=False)
    for name, says in (("tail", "'tail_of_text:head', which cannot be loaded"), ("other", "which has the name 'tail'")):
        with pytest.raises(UnknownMethod, match=says):
            methods.parse(name)


def test_an_adapter_takes_a_registered_method_and_refuses_a_nameless_one(registered):
    from langchain_eddy import EddyEmbeddings

    named = EddyEmbeddings(model_name="eddy-tiny", method="ranked:power=3.0")
    assert named.fingerprint == EddyEmbeddings(model_name="eddy-tiny", method=ranked(3.0)).fingerprint
    with pytest.raises(InvalidParameter, match="no name by which EddyEmbeddings could store"):
        EddyEmbeddings(model_name="eddy-tiny", method=by_hand())
