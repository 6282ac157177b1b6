"""Mixtures as they began: three errors compared on vowels, trees fitted by EM, experts between recurrent layers."""
