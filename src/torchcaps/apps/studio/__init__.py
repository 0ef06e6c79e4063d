"""An interactive page on routing, digits and trees. `server` translates JSON; the library computes."""
