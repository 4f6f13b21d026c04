"""The references are checked here against transformers and by hand; the library is then checked against them."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from tests.families import ENCODERS, FAMILIES, HIDDEN, LAYERS, MORE_FAMILIES, OWN_ATTENTION, SLIDING, TOKENIZERS, build
from tests.reference import layout as lay
from tests.reference import readout
from tests.reference.blocks import layers_of
from tests.reference.double import AllDouble, double
from tests.reference.forward import exit_layer, forward
from tests.reference.methods import default_range, embed, layout, run, token_states
from tests.reference.values import deviation, value
from tests.reference.windows import document_vector, passes, span_vector
from tests.reference.words import words
from tests.selection import turns

TEXT = '"Look," said Dr. Halvorsen: the café 🙂 stays.\n\n  Then 日本語。Nobody asked! Or did they, on the bridge?'
SENTENCES = [(0, 45), (49, 58), (58, 71), (72, 99)]
RANGE = (1, 5)


def ids_of(tokenizer, text=TEXT):
    return tokenizer(text)["input_ids"]


def eager(model):
    """A float64 copy with transformers' own plain attention."""
    other = copy.deepcopy(double(model))
    other.set_attn_implementation("eager")
    return other


# --- forward


@pytest.mark.parametrize("name", [*FAMILIES, *MORE_FAMILIES, *OWN_ATTENTION, *ENCODERS])
def test_forward_is_that_of_transformers(name):
    model, tokenizer = build(name)
    ids = ids_of(tokenizer)
    assert len(ids) > 4 * SLIDING
    with torch.no_grad(), AllDouble():
        theirs = eager(model)(torch.tensor([ids]), output_hidden_states=True, use_cache=False).hidden_states
    ours = forward(model, ids)
    assert len(ours) == len(theirs) == LAYERS + 1
    for h, expected in zip(ours, theirs, strict=True):
        assert h.dtype == expected.dtype == torch.float64
        assert (h - expected[0]).abs().max() <= 1e-10


@pytest.mark.parametrize(
    ("name", "span"), turns([*FAMILIES, *MORE_FAMILIES, *OWN_ATTENTION], [(1, 5), (2, 3), (1, 6), (3, 3)])
)
def test_copies_between_layers_are_those_of_hooks(name, span):
    model, tokenizer = build(name)
    ids = ids_of(tokenizer)[:30]
    vectors = {2: torch.linspace(-1, 1, HIDDEN, dtype=torch.float64), 5: torch.ones(HIDDEN, dtype=torch.float64)}
    edges = [(2, 20), (5, 11), (11, 29)]  # 11 is read by one edge and written by another
    other, entered = eager(model), []

    def embedded(module, inputs, output):
        output = output.clone()
        for position, vector in vectors.items():
            output[0, position] = vector
        return output

    def entering(index):
        def hook(module, inputs):
            h = inputs[0]
            entered.append(h[0])
            if index not in range(*span):
                return None
            changed = h.clone()
            changed[0, [dst for dst, _ in edges]] = h[0, [src for _, src in edges]]
            return (changed, *inputs[1:])

        return hook

    other.get_input_embeddings().register_forward_hook(embedded)
    for index, layer in enumerate(layers_of(other.base_model)):
        layer.register_forward_pre_hook(entering(index))
    with torch.no_grad(), AllDouble():
        final = other.base_model(torch.tensor([ids]), use_cache=False).last_hidden_state[0]

    ours = forward(model, ids, vectors, edges, span)
    for h, expected in zip(ours, [*entered, final], strict=True):
        assert (h - expected).abs().max() <= 1e-10
    for top in (0, 2):
        shorter = forward(model, ids, vectors, edges, span, top)
        assert len(shorter) == top + 1 and all(map(torch.equal, shorter, ours))


# --- layouts by hand


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_end_token_is_dropped_and_text_is_covered(kind):
    tokenizer = TOKENIZERS[kind]()
    done = layout("plain", {}, tokenizer, TEXT)
    assert tokenizer.eos_token_id not in done.ids[1:]  # the byte-level one's is the start token too
    assert done.text == list(range(len(done) - len(done.text), len(done)))
    assert done.ids[0] == tokenizer.bos_token_id and len(done) - len(done.text) == 1
    bare = layout("plain", {"start": False}, tokenizer, TEXT)
    assert bare.ids == (done.ids[1:] if kind == "byte-level" else done.ids) and bare.spans == done.spans
    seen = {c for start, end in done.spans for c in range(start, end)}
    assert {c for c in range(len(TEXT)) if not TEXT[c].isspace()} <= seen


THREE, THIRDS = "ab cd. ef! gh", [(0, 6), (7, 10), (11, 13)]
"""Three sentences: ab | " cd" | . and " ef" | ! and " gh"."""
SHOWN = "|B|B|B|P|ab| cd|.|P| ef|!|P| gh"
BY_HAND = [
    ("plain", {}, "ab cd", {}, ".|ab| cd", []),  # the front token; ab; " cd"; the end token is gone
    # "find: ab cd": find | : | " ab" | " cd". The blank of " ab" lies between instruction and text, in neither.
    ("plain", {}, "ab cd", {"instruction": "find:"}, ".|.|.|ab| cd", []),
    # < | This | " sentence" | " :" | ' "' | ab | " cd" | '"' | " means" | " in" | " one" | " word" | ':"'
    ("prompteol", {}, "ab cd", {}, ".|.|.|.|.|ab| cd|.|.|.|.|.|.", []),
    # 'cd,"' : the comma and the template's closing mark are one token, ',"', and it starts in the text
    ("prompteol", {}, "cd,", {}, ".|.|.|.|.|cd|,|.|.|.|.|.", []),
    # '"(cd' : the template's opening mark and the parenthesis are one token, ' "(', and it starts in the template
    ("prompteol", {}, "(cd", {}, ".|.|.|.|.|cd|.|.|.|.|.|.", []),
    ("tp", {}, "ab cd", {}, ".|P|ab| cd", [(1, 3)]),
    # 0 <, 1 This, 2 sentence, 3 " :", 4 P, 5 ' "', 6 ab, 7 " cd", 8 '"', 9 means, 10 in, 11 one, 12 word, 13 ':"'
    ("tp", {"prompt": "prompteol"}, "ab cd", {}, ".|.|.|.|P|.|ab| cd|.|.|.|.|.|.", [(4, 13)]),
    # two placeholders: 4 and 5, the last token moves to 14
    (
        *("tp", {"prompt": "prompteol", "placeholders": 2}, "ab cd", {}),
        *(".|.|.|.|P|P|.|ab| cd|.|.|.|.|.|.", [(4, 14), (5, 14)]),
    ),
    # a colon of the instruction or of the text does not introduce the text slot of `plain`
    ("tp", {}, "ab: cd", {"instruction": "find: it"}, ".|.|.|.|P|ab|:| cd", [(4, 7)]),
    # where the wording says, not where the text does
    (
        "tp",
        {"prompt": "say: {text}{placeholder} now"},
        "ab {placeholder}",
        {},
        ".|.|.|ab| {|placeholder|}|P|.",
        [(7, 8)],
    ),
    *(
        ("htp", parameters, THREE, {"sentences": THIRDS}, shown, edges)
        for parameters, shown, edges in (
            # ends of the sentences: "." at 7, "!" at 10, " gh" at 12; B-PST_m and PST_m both take the end of S_m
            ({}, f".{SHOWN}", [(1, 7), (2, 10), (3, 12), (4, 7), (8, 10), (11, 12)]),
            # blocks [0,10) and [11,13)
            ({"k": 2}, ".|B|B|P|ab| cd|.| ef|!|P| gh", [(1, 8), (2, 10), (3, 8), (9, 10)]),
            ({"local_only": True}, ".|P|ab| cd|.|P| ef|!|P| gh", [(1, 4), (5, 7), (8, 9)]),
            ({"global_only": True}, ".|B|B|B|ab| cd|.| ef|!| gh", [(1, 6), (2, 8), (3, 9)]),
        )
    ),
    (
        *("htp", {}, THREE, {"sentences": THIRDS, "instruction": "find it"}, f".|.|.{SHOWN}"),
        [(3, 9), (4, 12), (5, 14), (6, 9), (10, 12), (13, 14)],
    ),
    # blank | ab | . | blank | blank | cd with sentences [1,4) and [6,8): blanks are in no block
    (
        *("htp", {}, "\nab.\n\ncd", {"sentences": [(1, 4), (6, 8)]}),
        *(".|B|B|\n|P|ab|.|\n|\n|P|cd", [(1, 6), (2, 10), (4, 6), (9, 10)]),
    ),
    # ab | .) | cd with sentences [0,3) and [3,6). ".)" starts in the first, so PST_2 stands before cd; ".)" is also the
    # last token that overlaps the first.
    (
        *("htp", {}, "ab.)cd", {"sentences": [(0, 3), (3, 6)]}),
        *(".|B|B|P|ab|.)|P|cd", [(1, 5), (2, 7), (3, 5), (6, 7)]),
    ),
    # truncation cuts the text alone
    ("plain", {}, THREE, {"max_length": 4}, ".|ab| cd|.", []),
    # 5 in front, 3 of text ('."' starts in the text), 5 behind; 12 leave out '."'
    ("prompteol", {}, "ab cd.", {}, ".|.|.|.|.|ab| cd|.|.|.|.|.|.", []),
    ("prompteol", {}, "ab cd.", {"max_length": 12}, ".|.|.|.|.|ab| cd|.|.|.|.|.", []),
]
"""Method, parameters, text and options; text tokens in their own letters, `P` and `B` placeholders, `.` the rest."""


def test_layouts_by_hand():
    for method, parameters, text, options, expected, edges in BY_HAND:
        done = layout(method, parameters, words, text, **options)
        shown = ["."] * len(done)
        for position, (start, end) in zip(done.text, done.spans, strict=True):
            shown[position] = text[start:end]
        for position, kind in done.placeholders.items():
            shown[position] = "PB"[kind]
        assert ("|".join(shown), sorted(done.edges)) == (expected, edges), (method, parameters, options)
    assert layout("plain", {}, words, "ab cd", instruction="find:").spans == [(0, 2), (2, 5)]
    # 13 with three blocks; 5 text tokens need two blocks: 1 + 5 + 4 = 10; 3 need one: 1 + 3 + 2 = 6
    for limit, length in [(13, 13), (12, 10), (10, 10), (9, 9), (8, 6), (6, 6), (5, 5)]:
        assert len(layout("htp", {}, words, THREE, sentences=THIRDS, max_length=limit)) == length
    with pytest.raises(ValueError, match="no token"):
        layout("htp", {}, words, THREE, sentences=THIRDS, max_length=3)


# --- readouts, values and defaults by hand


def test_readouts_by_hand():
    h = np.arange(5.0)[:, None]
    assert readout.mean(h, [1, 2, 3]) == 2  # (1 + 2 + 3) / 3
    assert readout.last(h, [1, 2, 3]) == 4
    assert readout.hybrid(h, [1, 2, 3]) == 3  # (2 + 4) / 2
    assert readout.weighted(h, [1, 2, 4]) == 17 / 6  # (1·1 + 2·2 + 3·4) / (1 + 2 + 3)
    assert readout.unit(np.array([3.0, 4.0])).tolist() == [0.6, 0.8]


def test_default_range_and_exit():
    ends = {2: 2, 6: 2, 12: 3, 16: 4, 24: 6, 28: 7, 32: 7}  # L // 4 between 2 and 7
    assert {layers: default_range(layers) for layers in ends} == {layers: (1, end) for layers, end in ends.items()}
    model, _ = build("llama")
    assert [exit_layer(model, index) for index in (-1, -2, 0, 3, -7)] == [6, 5, 0, 3, 0]


def test_placeholder_values():
    model, _ = build("gemma2")
    # Gemma scales the rows of the matrix by sqrt(hidden) = 8, and the deviation is that of the output
    rows = model.get_input_embeddings().weight.detach().double().numpy()
    assert deviation(model) == pytest.approx(8 * rows.std(), rel=1e-12)
    assert value(model, 0).std() == pytest.approx(deviation(model), rel=0.3)
    assert not np.allclose(value(model, 0), value(model, 1))
    assert not np.allclose(value(model, 0), value(model, 0, seed=1))


# --- what must hold


def test_all_pools_placeholders_after_the_copy():
    model, tokenizer = build("llama")
    for top, inside in [(4, True), (5, False)]:  # the copy happens on h[1] .. h[4]
        params = {"range": RANGE, "exit": top, "pool": "all"}
        done = run("htp", params, model, tokenizer, TEXT, sentences=SENTENCES)
        copies = [np.array_equal(done.h[dst], done.h[src]) for dst, src in done.layout.edges]
        assert copies == [inside] * (2 * len(SENTENCES))
        assert len(done.pooled) == len(done.layout.text) + 2 * len(SENTENCES)


def test_poolings_read_what_they_name():
    model, tokenizer = build("qwen3")
    start = [tokenizer.bos_token_id]
    h = forward(model, start + ids_of(tokenizer))[-1].numpy()
    states, spans = token_states("plain", {}, model, tokenizer, TEXT)
    assert np.array_equal(states, h[1:]) and len(spans) == len(h) - 1
    for pool, function in readout.POOLINGS.items():
        expected = readout.unit(function(h, range(1, len(h))))
        assert np.abs(embed("plain", {"pool": pool}, model, tokenizer, TEXT) - expected).max() <= 1e-14
    prompt = start + ids_of(tokenizer, lay.PROMPTEOL.replace("{text}", TEXT))
    expected = readout.unit(forward(model, prompt, upto=4)[4][-1].numpy())
    assert np.abs(embed("prompteol", {"exit": 4}, model, tokenizer, TEXT) - expected).max() <= 1e-14


# --- windows


def test_windows_by_hand():
    model, _ = build("gpt2")
    # ten words of one token each, "a b c ... j", two to a sentence: [0,3) [4,7) [8,11) [12,15) [16,19)
    text, sentences = "a b c d e f g h i j", [(n, n + 3) for n in range(0, 20, 4)]
    # windows "a .. f" and "c .. j" overlap by c d e f. To its end have c 3, d 2, e 1, f 0 tokens in the first window;
    # behind the start of the second stand c 0, d 1, e 2, f 3. So c d count in the first, e f in the second.
    windows = passes("plain", {}, model, words, text, [(0, 11), (4, 19)], sentences=sentences)
    letters = [[text[w.spans[i][0]] for i in w.counted] for w in windows]
    assert letters == [list("abcd"), list("efghij")]
    first, second = (w.done.h[1:] for w in windows)  # without the front token
    total = (first[:4].sum(0) + second[2:].sum(0)) / 10  # 4 tokens of the one, 6 of the other
    assert np.abs(document_vector(windows) - readout.unit(total)).max() <= 1e-12
    assert np.abs(span_vector(windows, (4, 7)) - readout.unit(first[2:4].mean(0))).max() <= 1e-12
    # "last": the windows' last states, 4 : 6
    windows = passes("plain", {"pool": "last"}, model, words, text, [(0, 11), (4, 19)], sentences=sentences)
    total = (4 * windows[0].done.h[-1] + 6 * windows[1].done.h[-1]) / 10
    assert np.abs(document_vector(windows) - readout.unit(total)).max() <= 1e-12
