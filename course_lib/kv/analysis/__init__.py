"""What a cache keeps and knows, measured: attention, streams, retrieval, compressed prompts."""
