"""Pictures, drawn with matplotlib from what `analysis` and `evaluate` find."""
