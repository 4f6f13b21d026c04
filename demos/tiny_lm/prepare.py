"""Train the tokenizer and turn a corpus into memory-mapped shards of token ids.

The corpus is a folder of ``<source>-NN.txt`` or ``<source>-NN.txt.xz`` files: UTF-8, one paragraph a line, a blank
line between documents.  For each of them a shard is written: ``<source>-NN.bin`` (uint16 ids; every document ends
with ``</s>``, none begins with ``<s>``) and ``<source>-NN.starts.npy`` (int64 start of each document, and the end).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import lzma
from collections.abc import Iterator
from itertools import groupby, islice
from pathlib import Path

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

log = logging.getLogger("tiny_lm.prepare")

PAD, BOS, EOS = "<pad>", "<s>", "</s>"
PAD_ID, BOS_ID, EOS_ID = 0, 1, 2
WINDOW = 2048
# Words keep their leading space, numbers fall into groups of three digits, and every character belongs to one piece,
# so that the offsets of the tokens cover the text without gaps.
PRETOKEN_PATTERN = r"['’](?:[sdmt]|ll|ve|re)\b| ?\p{L}[\p{L}\p{M}]*| ?\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def source_of(path: Path) -> str:
    """Name of the source of a corpus file: ``gov`` for ``gov-00.txt.xz``."""
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
    """Text for the tokenizer: an equal number of bytes at most from each file, spread over its documents."""
    share = int(megabytes * 1e6 / len(files))
    for path in files:
        texts = list(documents(path))
        stride = max(1, sum(map(len, texts)) // share)
        taken = 0
        for text in texts[::stride]:
            if taken > share:
                break
            taken += len(text)
            yield text


def train_tokenizer(texts: Iterator[str], vocab_size: int) -> Tokenizer:
    """A byte-level BPE (Radford et al. 2019, section 2.2) that puts ``<s>`` in front: no text is unknown."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRETOKEN_PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [AddedToken(name, special=True, normalized=False) for name in (PAD, BOS, EOS)]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=special,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
        min_frequency=2,
        max_token_length=24,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, BOS_ID)]
    )
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, out: Path) -> None:
    """Write ``tokenizer.json`` and the ``tokenizer_config.json`` that transformers reads."""
    tokenizer.save(str(out / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": WINDOW,
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": PAD,
        "padding_side": "right",
        "truncation_side": "right",
        "clean_up_tokenization_spaces": False,
    }
    (out / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def write_shards(
    tokenizer: Tokenizer, path: Path, out: Path, max_tokens: int, batch: int = 512
) -> list[dict[str, object]]:
    """Tokenise one corpus file into shards of at most ``max_tokens`` ids (a longer document is a shard alone)."""
    entries: list[dict[str, object]] = []
    ids: list[np.ndarray] = []
    stem = path.name.split(".")[0]
    held = 0

    def flush() -> None:
        nonlocal held
        if not ids:
            return
        name = f"{stem}-{len(entries):02d}"
        starts = np.concatenate([[0], np.cumsum([len(i) for i in ids])]).astype(np.int64)
        np.concatenate(ids).tofile(out / f"{name}.bin")
        np.save(out / f"{name}.starts.npy", starts)
        entries.append({"name": name, "source": source_of(path), "documents": len(ids), "tokens": int(starts[-1])})
        ids.clear()
        held = 0

    texts = documents(path)
    while some := list(islice(texts, batch)):
        for encoding in tokenizer.encode_batch_fast(some, add_special_tokens=False):
            document = np.array([*encoding.ids, EOS_ID], dtype=np.uint16)
            if held + len(document) > max_tokens:
                flush()
            ids.append(document)
            held += len(document)
    flush()
    return entries


def prepare(corpus: Path, out: Path, vocab_size: int = 8192, sample_mb: float = 40.0, shard_mib: float = 60.0) -> None:
    """Tokenizer and shards of a corpus folder, with ``meta.json`` that describes them."""
    if vocab_size > 2**16:
        raise ValueError(f"vocab_size {vocab_size} does not fit 16-bit ids: take at most {2**16}")
    out.mkdir(parents=True, exist_ok=True)
    files = corpus_files(corpus)
    tokenizer = train_tokenizer(sample(files, sample_mb), vocab_size)
    save_tokenizer(tokenizer, out)
    log.info("tokenizer: %d tokens", tokenizer.get_vocab_size())
    shards: list[dict[str, object]] = []
    for path in files:
        shards += write_shards(tokenizer, path, out, int(shard_mib * 2**20) // 2)
        log.info("%s", shards[-1])
    digest = hashlib.sha256((out / "tokenizer.json").read_bytes()).hexdigest()
    meta = {"vocab_size": tokenizer.get_vocab_size(), "tokenizer_sha256": digest, "shards": shards}
    (out / "meta.json").write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--vocab-size", type=int, default=8192)
    parser.add_argument("--sample-mb", type=float, default=40.0, help="text for the tokenizer, in megabytes")
    parser.add_argument("--shard-mib", type=float, default=60.0, help="largest shard file")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    prepare(args.corpus, args.out, args.vocab_size, args.sample_mb, args.shard_mib)


if __name__ == "__main__":
    main()
