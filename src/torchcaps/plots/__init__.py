"""Figures of the results of `analysis` and `evaluate`, drawn with matplotlib."""
