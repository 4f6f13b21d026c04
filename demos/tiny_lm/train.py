"""Pre-train by next-token prediction, on CPU or one CUDA device, resumable at every checkpoint.

Row r of the data and factor s of the schedule depend on the step and the seed alone, so a run that was interrupted
ends with the very same parameters (same device, same number of threads).
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from tiny_lm import checkpoint, model
from tiny_lm.data import Corpus, RowBatch, TrainingOrder
from tiny_lm.model import EMBEDDING, Network, NetworkShape, Weights, next_token_loss
from tiny_lm.optim import LearningRates, Optimiser, rate_factor

log = logging.getLogger("tiny_lm.train")


@dataclass(frozen=True)
class TrainingSettings:
    """Settings that determine the result of a run, together with the data."""

    phases: tuple[tuple[int, int], ...] = ((256, 1000), (512, 400), (2048, 100))  # (length of a row, steps)
    # (step, factor on the learning rates), linear in between: warm-up, level, decay to zero
    schedule: tuple[tuple[int, float], ...] = ((-1, 0.0), (59, 1.0), (700, 1.0), (1500, 0.0))
    tokens: int = 12288  # positions in one step
    chunk: int = 1024  # positions whose logits are held at once
    micro: int = 3072  # most positions in one forward pass
    seed: int = 1
    compute: str = "bfloat16"
    shape: NetworkShape = field(default_factory=NetworkShape)
    rates: LearningRates = field(default_factory=LearningRates)
    weights: dict[str, int] = field(default_factory=dict)  # times that a source occurs in a pass; one where not named

    @property
    def steps(self) -> int:
        """Number of steps of the run."""
        return sum(steps for _, steps in self.phases)

    def rows_of(self, step: int) -> tuple[int, int]:
        """Return the length of the rows at a step, and the number of earlier steps with other lengths."""
        before = 0
        for length, steps in self.phases:
            if step < before + steps:
                return length, before
            before += steps
        raise IndexError(f"step {step} of {self.steps}: the run has ended")


class Trainer:
    """One run: weights, moments, data order."""

    def __init__(self, settings: TrainingSettings, data: Path, device: str = "cpu", workers: int = 1) -> None:
        self.settings, self.device = settings, torch.device(device)
        self.corpus = Corpus(data)
        if self.corpus.meta["vocab_size"] > settings.shape.vocab:
            raise ValueError(f"{data} has {self.corpus.meta['vocab_size']} tokens, the model {settings.shape.vocab}")
        self.network = Network(settings.shape)
        # On CPU two threads with a micro-batch each beat one micro-batch on two threads: nothing waits inside an
        # operation.  Sums are taken in the order of the data, so the result is the same for any number of workers.
        torch.set_num_threads(1)
        self.pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))
        weights = {n: w.to(self.device) for n, w in model.initial_weights(settings.shape, settings.seed).items()}
        self.optimiser = Optimiser(weights, settings.rates)
        self.step = self.seen = 0
        self.orders: dict[int, TrainingOrder] = {}

    def order(self, length: int) -> TrainingOrder:
        """Return the order of the rows of one length, computed at its first use."""
        if length not in self.orders:
            self.orders[length] = TrainingOrder(self.corpus, length, self.settings.weights, self.settings.seed)
        return self.orders[length]

    def batches(self) -> list[RowBatch]:
        """Return the micro-batches of the current step."""
        s = self.settings
        length, others = s.rows_of(self.step)
        count, order = max(1, s.tokens // length), self.order(length)
        per_pass = len(self.order(s.phases[0][0]).rows) * s.phases[0][0]
        first = round(others * s.tokens / per_pass * len(order.rows)) + (self.step - others) * count
        return [
            RowBatch(*(array[i : i + max(1, s.micro // length)] for array in vars(rows).values()))
            for rows in order.batch(first, count)
            for i in range(0, len(rows.ids), max(1, s.micro // length))
        ]

    def advance(self) -> tuple[float, float]:
        """Do one step; return the mean loss in nats and the norm of the gradients."""
        s = self.settings
        batches = self.batches()
        counted = int(sum((rows.targets >= 0).sum() for rows in batches))
        dtype = getattr(torch, s.compute)
        compute = {n: w.to(dtype, copy=True).requires_grad_() for n, w in self.optimiser.weights.items()}
        grads: Weights = {}
        loss = 0.0
        for part, found in self.pool.map(lambda rows: self._backward(compute, rows, 1.0 / counted), batches):
            loss += part
            for name, grad in found.items():
                grads[name] = grads[name].add_(grad) if name in grads else grad.float()
        factor = rate_factor(self.step, s.schedule)
        norm = self.optimiser.step(grads, factor, self.pool.map)
        self.step, self.seen = self.step + 1, self.seen + counted
        return loss, norm

    def _backward(self, compute: Weights, rows: RowBatch, scale: float) -> tuple[float, Weights]:
        ids, targets, positions, segments = (torch.from_numpy(a).to(self.device) for a in vars(rows).values())
        hidden = self.network.hidden(compute, ids, positions, None if rows.whole else segments)
        loss = next_token_loss(hidden.flatten(0, 1), compute[EMBEDDING], targets.flatten(), scale, self.settings.chunk)
        grads = torch.autograd.grad(loss, list(compute.values()))
        return float(loss.detach()), dict(zip(compute, grads, strict=True))

    def save(self, folder: Path, part_mib: float = 16.0) -> Path:
        """Write a checkpoint into the folder of the run."""
        tensors = {f"w.{n}": w for n, w in self.optimiser.weights.items()} | self.optimiser.state
        facts = {
            "seen": self.seen,
            "settings": asdict(self.settings),
            "tokenizer": self.corpus.meta["tokenizer_sha256"],
        }
        return checkpoint.save(folder, self.step, tensors, facts, part_mib)

    def resume(self, path: Path) -> None:
        """Continue from a checkpoint."""
        tensors, facts = checkpoint.load(path)
        if facts["tokenizer"] != self.corpus.meta["tokenizer_sha256"]:
            raise ValueError(f"{path} was trained with another tokenizer: use the data it was made with")
        self.optimiser.load(tensors)
        self.step, self.seen = facts["step"], facts["seen"]

    def run(self, folder: Path, until: int, every: float = 180.0, part_mib: float = 16.0) -> None:
        """Train up to step ``until``; a checkpoint every ``every`` seconds and at the end."""
        saved = mark = time.monotonic()
        tokens = self.seen
        while self.step < until:
            loss, norm = self.advance()
            now = time.monotonic()
            if self.step % 10 == 0:
                rate = (self.seen - tokens) / (now - mark)
                log.info("step %d seen %d loss %.4f norm %.2f %.0f tokens/s", self.step, self.seen, loss, norm, rate)
                tokens, mark = self.seen, now
            if now - saved > every:
                self.save(folder, part_mib)
                saved = time.monotonic()
        self.save(folder, part_mib)


def read_settings(path: Path | None, overrides: list[str]) -> TrainingSettings:
    """Settings from a JSON file and from ``name=value`` or ``rates.name=value`` words, values in JSON."""
    given: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path else {}
    for word in overrides:
        name, _, value = word.partition("=")
        *outer, last = name.split(".")
        place = given
        for key in outer:
            place = place.setdefault(key, {})
        place[last] = json.loads(value)
    if "phases" in given:
        given["phases"] = tuple((int(length), int(steps)) for length, steps in given["phases"])
    if "schedule" in given:
        given["schedule"] = tuple((int(step), float(factor)) for step, factor in given["schedule"])
    given["shape"] = NetworkShape(**given.get("shape", {}))
    given["rates"] = LearningRates(**given.get("rates", {}))
    return TrainingSettings(**given)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Pre-train by next-token prediction; run it again to go on.")
    parser.add_argument("--data", type=Path, required=True, help="folder written by prepare")
    parser.add_argument("--run", type=Path, required=True, help="folder of checkpoints")
    parser.add_argument("--settings", type=Path, help="JSON file of settings")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings, such as steps=2000")
    parser.add_argument("--until", type=int, help="stop after this step (default: the last)")
    parser.add_argument("--every", type=float, default=180.0, help="seconds between checkpoints")
    parser.add_argument("--part-mib", type=float, default=16.0, help="largest file of a checkpoint")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="micro-batches at once; 1 on a GPU")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    settings = read_settings(args.settings, args.set)
    trainer = Trainer(settings, args.data, args.device, args.workers)
    if checkpoint.checkpoints(args.run):
        trainer.resume(checkpoint.latest(args.run))
    trainer.run(args.run, min(settings.steps, args.until or settings.steps), args.every, args.part_mib)


if __name__ == "__main__":
    main()
