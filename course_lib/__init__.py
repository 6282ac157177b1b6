"""The library behind the workbook on sparsity in large language models."""
