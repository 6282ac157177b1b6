"""Experiments of lesson 05. Modules without EXPERIMENT hold steps that `course reproduce minitron` uses."""
