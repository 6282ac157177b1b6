"""One experiment, one file: `course reproduce NAME` runs the EXPERIMENT of experiments/NAME.py."""
