"""What a routing must know to be made outside of a layer, for any number of children."""


def sized(name, parents=3, dim=4):
    sizes = {"out_capsules": parents, "out_dim": dim, "prior": False}
    needed = {"attention": "prior", "em": "out_capsules", "heinsen": "out_capsules", "variational": "out_capsules"}
    needed["inverted"] = "out_dim"
    return {word: size for word, size in sizes.items() if needed.get(name) == word}
