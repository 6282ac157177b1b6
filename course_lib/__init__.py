"""The library of the workbook on sparsity in large language models."""
