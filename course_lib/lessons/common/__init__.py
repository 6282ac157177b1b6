"""Plots, tables and verdicts that several lessons share; nothing here depends on a lesson."""
