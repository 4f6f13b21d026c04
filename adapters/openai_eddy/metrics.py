"""What an endpoint counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from openai_eddy.scheduler import Batch

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
TOKENS = (16, 64, 256, 1024, 2048, 4096, 8192, 16384, 65536)
CONTENT_TYPE = CONTENT_TYPE_LATEST


class Metrics:
    """Counters of one endpoint, in a registry of its own. None holds texts, keys or addresses."""

    def __init__(self) -> None:
        """Begin at 0."""
        self.registry = CollectorRegistry()
        self._answers = Counter("eddy_requests", "Requests answered.", ("path", "status"), registry=self.registry)
        self._seconds = Histogram(
            "eddy_request_seconds",
            "From a request's head to its answer.",
            ("path",),
            buckets=SECONDS,
            registry=self.registry,
        )
        self._inputs = Counter("eddy_inputs", "Inputs embedded.", ("role",), registry=self.registry)
        self._tokens = Counter("eddy_tokens", "Tokens of the inputs embedded.", registry=self.registry)
        self._batch_inputs = Histogram("eddy_batch_inputs", "Inputs in a batch.", buckets=SIZES, registry=self.registry)
        self._batch_requests = Histogram(
            "eddy_batch_requests", "Requests in a batch.", buckets=SIZES, registry=self.registry
        )
        self._batch_tokens = Histogram(
            "eddy_batch_tokens", "Tokens in a batch.", buckets=TOKENS, registry=self.registry
        )
        self._batch_seconds = Histogram(
            "eddy_batch_seconds", "That a batch took.", buckets=SECONDS, registry=self.registry
        )
        ProcessCollector(registry=self.registry)

    def watch(self, name: str, what: str, value: Callable[[], float]) -> None:
        """A gauge that is read when somebody looks."""
        Gauge(name, what, registry=self.registry).set_function(value)

    def served(self, model: str, fingerprints: Mapping[str, str]) -> None:
        """What answers here: the fingerprint of each method."""
        info = Gauge("eddy_model_info", "Always 1.", ("model", "method", "fingerprint"), registry=self.registry)
        for method, fingerprint in fingerprints.items():
            info.labels(model, method, fingerprint).set(1)

    def answered(self, path: str, status: int, seconds: float) -> None:
        """A request was answered."""
        self._answers.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def embedded(self, role: str, inputs: int, tokens: int) -> None:
        """Inputs were embedded and their request answered."""
        self._inputs.labels(role).inc(inputs)
        self._tokens.inc(tokens)

    def ran(self, batch: Batch) -> None:
        """A batch ran."""
        self._batch_inputs.observe(batch.items)
        self._batch_requests.observe(batch.requests)
        self._batch_tokens.observe(batch.cost)
        self._batch_seconds.observe(batch.seconds)

    def page(self) -> bytes:
        """All of it as text."""
        return generate_latest(self.registry)
