"""Votes: the prediction of each child for the pose of each parent, the largest tensors of a capsule network."""
