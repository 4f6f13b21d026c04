"""Train the tokenizer and turn a corpus into token ids.

The corpus is a folder of `<source>-NN.txt` or `<source>-NN.txt.xz` files: UTF-8, one paragraph a line, a blank line
between documents. For each of them this writes `<source>-NN.npz`: `tokens` (uint16 ids; every document ends with
`</s>`) and `starts` (the start of each document, and the end of the last).
"""

from __future__ import annotations

import argparse
import lzma
from collections.abc import Iterator
from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

PAD, BOS, EOS = "<pad>", "<s>", "</s>"
PAD_ID, BOS_ID, EOS_ID = 0, 1, 2
WINDOW = 2048
# Words keep their leading space, numbers fall into groups of three digits, and every character belongs to one piece,
# so that the offsets of the tokens cover the text without gaps.
PRETOKEN_PATTERN = r"['’](?:[sdmt]|ll|ve|re)\b| ?\p{L}[\p{L}\p{M}]*| ?\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def source_of(path: Path) -> str:
    """Name of the source of a corpus file: `gov` for `gov-00.txt.xz`."""
    return path.name.split(".")[0].rpartition("-")[0]


def corpus_files(corpus: Path) -> list[Path]:
    """Training files of a corpus folder in a fixed order."""
    files = sorted(p for p in corpus.iterdir() if p.name.endswith((".txt", ".txt.xz")) and source_of(p))
    if not files:
        raise FileNotFoundError(f"no <source>-NN.txt or .txt.xz in {corpus}: give the corpus folder")
    return files


def documents(path: Path) -> Iterator[str]:
    """Documents of one corpus file, their paragraphs joined by single line feeds."""
    opened = lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open(encoding="utf-8")
    with opened as lines:
        for is_text, block in groupby(lines, key=lambda line: bool(line.strip())):
            if is_text:
                yield "\n".join(line.rstrip("\n") for line in block)


def sample(files: list[Path], megabytes: float) -> Iterator[str]:
    """Text for the tokenizer: about as many characters of each file, spread over its documents."""
    for texts in (list(documents(path)) for path in files):
        yield from texts[:: 1 + int(sum(map(len, texts)) * len(files) / (megabytes * 1e6))]


def train_tokenizer(texts: Iterator[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE (Radford et al. 2019, section 2.2) that puts `<s>` in front: no text is unknown."""
    tokenizer = Tokenizer(models.BPE())
    pieces = pre_tokenizers.Split(Regex(PRETOKEN_PATTERN), "isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pieces, to_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[PAD, BOS, EOS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
        min_frequency=2,
        max_token_length=24,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, BOS_ID)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=BOS, eos_token=EOS, pad_token=PAD, model_max_length=WINDOW
    )


def prepare(corpus: Path, out: Path, vocab_size: int = 8192, sample_mb: float = 40.0) -> None:
    """Write the tokenizer and the token ids of a corpus folder; a vocabulary must fit 16 bits."""
    files = corpus_files(corpus)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(sample(files, sample_mb), vocab_size)
    tokenizer.save_pretrained(out)
    for path in files:
        encode = partial(tokenizer.backend_tokenizer.encode, add_special_tokens=False)
        ids = [np.array([*encode(text).ids, EOS_ID], np.uint16) for text in documents(path)]
        starts = np.cumsum([0, *map(len, ids)], dtype=np.int64)
        np.savez(out / f"{path.name.split('.')[0]}.npz", tokens=np.concatenate(ids), starts=starts)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Train the tokenizer and turn a corpus into token ids.")
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    prepare(args.corpus, args.out)


if __name__ == "__main__":
    main()
