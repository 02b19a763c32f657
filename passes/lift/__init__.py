"""Sixth: recurrences leave their loop as nodes of ours."""
