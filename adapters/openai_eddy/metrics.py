"""Prometheus metrics of an endpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
TOKENS = (16, 64, 256, 1024, 2048, 4096, 8192, 16384, 65536)


class Metrics:
    """Metrics of one endpoint, in a registry of its own. None holds texts, keys or addresses."""

    def __init__(self) -> None:
        """Register the metrics."""
        self.registry = CollectorRegistry()

        def histogram(name: str, description: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(name, description, labels, buckets=buckets, registry=self.registry)

        self._responses = Counter("eddy_requests", "Requests answered.", ("path", "status"), registry=self.registry)
        self._seconds = histogram("eddy_request_seconds", "From a request's head to its answer.", SECONDS, "path")
        roles = ("role",)  # document, query, or judged
        self._inputs = Counter("eddy_inputs", "Inputs embedded or judged.", roles, registry=self.registry)
        self._tokens = Counter("eddy_tokens", "Tokens embedded or judged.", roles, registry=self.registry)
        self._batch_inputs = histogram("eddy_batch_inputs", "Inputs in a batch.", SIZES)
        self._batch_requests = histogram("eddy_batch_requests", "Requests in a batch.", SIZES)
        self._batch_tokens = histogram("eddy_batch_tokens", "Tokens in a batch.", TOKENS)
        self._batch_seconds = histogram("eddy_batch_seconds", "That a batch took.", SECONDS)
        ProcessCollector(registry=self.registry)

    def add_gauge(self, name: str, description: str, value: Callable[[], float]) -> None:
        """Add a gauge whose value is computed at each scrape."""
        Gauge(name, description, registry=self.registry).set_function(value)

    def set_model(self, model: str, fingerprints: Mapping[str, str]) -> None:
        """Publish the model's name, and the fingerprint of each method."""
        info = Gauge("eddy_model_info", "Always 1.", ("model", "method", "fingerprint"), registry=self.registry)
        for method, fingerprint in fingerprints.items():
            info.labels(model, method, fingerprint).set(1)

    def count_response(self, path: str, status: int, seconds: float) -> None:
        """Count a response."""
        self._responses.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def count_inputs(self, role: str, inputs: int, tokens: int) -> None:
        """Count the inputs of a request that succeeded."""
        self._inputs.labels(role).inc(inputs)
        self._tokens.labels(role).inc(tokens)

    def count_batch(self, inputs: int, requests: int, tokens: int, seconds: float) -> None:
        """Count a batch."""
        self._batch_inputs.observe(inputs)
        self._batch_requests.observe(requests)
        self._batch_tokens.observe(tokens)
        self._batch_seconds.observe(seconds)

    def render(self) -> bytes:
        """Give all metrics in Prometheus's text format."""
        return generate_latest(self.registry)
