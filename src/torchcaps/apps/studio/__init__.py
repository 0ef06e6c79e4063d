"""A page in the browser to play with routing, digits and trees. `server` translates JSON, the library computes."""
