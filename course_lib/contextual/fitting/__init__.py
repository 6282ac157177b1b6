"""What selectors learn from calibration text: thresholds, and linear maps."""
