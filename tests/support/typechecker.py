"""Beartype as jaxtyping's checker, with whole numbers allowed where floats are (PEP 484)."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
