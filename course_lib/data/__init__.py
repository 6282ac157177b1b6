"""Data: corpora, benchmarks and needles; no model and no measurement."""
