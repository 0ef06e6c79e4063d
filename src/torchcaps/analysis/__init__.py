"""To look inside a network and to question it: a model and a batch in, plain data out. Pictures are in `plots`."""
