"""What lesson 11 prints of its committed results: tables and verdicts, one module per result."""
