"""How long the studio takes to answer, over a real connection: the median of 100 questions, and the 95th percentile.

Beside them the processor time of one question, asker and server together, which other work on the machine does not
lengthen: what to expect of a quiet one.

python benchmarks/studio.py            the networks that come along
python benchmarks/studio.py runs/mine  those of runs
"""

from __future__ import annotations

import http.client
import json
import statistics
import sys
import threading
import time
from pathlib import Path

import torch

from torchcaps.analysis.points import make_points
from torchcaps.apps.studio.networks import run_networks, shipped_networks
from torchcaps.apps.studio.server import create_app, free_socket, make_server

QUESTIONS = 100


def main() -> None:
    torch.set_num_threads(1)  # as the command does
    networks = run_networks([Path(word) for word in sys.argv[1:]]) if sys.argv[1:] else shipped_networks()
    images = {each.name: each.pixels(each.data.batch(torch.arange(1)).inputs[0]) for each in networks}
    server = make_server(create_app(networks))
    with free_socket("127.0.0.1", 0) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        line = http.client.HTTPConnection("127.0.0.1", listening.getsockname()[1])

        def ask(room: str, **body: object) -> dict[str, object]:
            line.request("POST", f"/api/{room}", json.dumps(body), {"content-type": "application/json"})
            answer = line.getresponse()
            text = answer.read()
            assert answer.status == 200, text
            return json.loads(text)

        def tell(title: str, room: str, **body: object) -> None:
            taken, busy = [], time.process_time()
            for _ in range(QUESTIONS):
                start = time.perf_counter()
                ask(room, **body)
                taken.append(1000 * (time.perf_counter() - start))
            work = 1000 * (time.process_time() - busy) / QUESTIONS
            late = statistics.quantiles(taken, n=20)[-1]
            print(f"{title:<32} {statistics.median(taken):6.1f} ms  {late:6.1f} ms  {work:6.1f} ms")

        print(f"{'':<32}    median       95 %  processor")
        points = make_points("blobs").points.tolist()
        tell("clusters (em, 10 iterations)", "clusters", points=points, routing="em", iterations=10)
        for network in networks:
            named = {"network": network.name}
            tell(f"digit ({network.name})", "digit", **named, pixels=images[network.name])
            if network.model.decoder is not None:
                found = ask("digit", **named, pixels=images[network.name])
                tell(f"pose ({network.name})", "pose", **named, label=found["winner"], pose=found["pose"])
            tell(f"tree ({network.name})", "tree", **named, pixels=images[network.name])
        server.should_exit = True
        line.close()
        thread.join()


if __name__ == "__main__":
    main()
