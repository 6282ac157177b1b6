"""Lesson 02, optimal brain damage and surgeon: exercises, experiments, claims, tables and figures."""
