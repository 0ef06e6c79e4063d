"""Votes: what each child says about the pose of each parent, the largest thing in a capsule network."""
