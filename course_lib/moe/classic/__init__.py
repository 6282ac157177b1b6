"""Mixtures of small experts as they began: three errors compared on vowels, and trees of experts fitted by EM."""
