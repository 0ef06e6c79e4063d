"""Questions to the studio, and its refusals."""

import torch


def ask(client, path, **body):
    answer = client.post(f"/api/{path}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(answer, status=422):
    """The sentence of an error."""
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"error"}
    return answer.json()["error"]


def first_image(network):
    image = network.data.batch(torch.arange(1)).inputs[0]
    return image, network.pixels(image)
