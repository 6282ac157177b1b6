"""Lesson 12: everything built so far in one model under one budget."""
