"""Data: corpora, benchmarks and needles, without models and measurements."""
