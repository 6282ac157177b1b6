"""What several lessons draw, print or judge alike; knows no lesson."""
