"""Answer over HTTP with an exported network, without torch: numpy and onnxruntime are enough.

    torchcaps export runs/mine --out mine.onnx
    python examples/serve_onnx.py mine.onnx --port 8000
    curl --data-binary @new.png http://localhost:8000
    {"labels": ["cat"], "confidence": [0.9312]}

GET tells what the network takes. Pictures need Pillow; texts are posted as they are and need the package tokenizers.
"""

import argparse
import io
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import onnxruntime

LARGEST = 50_000_000  # bytes of a picture or a text


class Network:
    """An exported network and what its metadata say of it."""

    def __init__(self, path):
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        self.notes = self.session.get_modelmeta().custom_metadata_map
        self.classes = json.loads(self.notes["classes"])
        if "image_shape" in self.notes and json.loads(self.notes["image_shape"])[0] not in (1, 3):
            raise SystemExit("serve_onnx: expected a network for gray or color pictures, got one for other images.")
        if "vocabulary" in self.notes:
            from tokenizers import Tokenizer

            self.tokenizer = Tokenizer.from_str(self.notes["vocabulary"])

    def answer(self, body):
        """The classes of a picture or a text, and how active they are, from 0 to 1."""
        inputs = self.read_text(body) if "vocabulary" in self.notes else self.read_picture(body)
        (activations,) = self.session.run(["activations"], {self.session.get_inputs()[0].name: inputs})
        order = np.argsort(-activations[0], kind="stable")
        if self.notes["named"] == "above 0.5":
            named = [place for place in order if activations[0, place] > 0.5]
        else:
            named = order[: int(self.notes["named"])]
        return {
            "labels": [self.classes[place] for place in named],
            "confidence": [round(float(activations[0, place]), 4) for place in named],
        }

    def read_picture(self, body):
        """A picture as the network wants it, [1 c h w] from 0 to 1: upright, on white, resized, in gray if need be."""
        from PIL import Image, ImageOps

        channels, height, width = json.loads(self.notes["image_shape"])
        picture = ImageOps.exif_transpose(Image.open(io.BytesIO(body)))
        if picture.mode.startswith("I"):  # 16 bits of gray
            values = np.asarray(picture, np.float64) / 257
            picture = Image.fromarray(np.clip(np.round(values), 0, 255).astype(np.uint8))
        if "A" in picture.getbands() or "transparency" in picture.info:
            picture = picture.convert("RGBA")
            picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
        picture, filter = picture.convert("RGB"), Image.Resampling.BILINEAR  # another filter costs accuracy
        fit = self.notes.get("fit", "stretch")
        if fit == "crop":
            picture = ImageOps.fit(picture, (width, height), filter)
        elif fit == "pad":
            scale = min(width / picture.width, height / picture.height)
            small = picture.resize([max(1, round(scale * side)) for side in picture.size], filter, reducing_gap=3.0)
            picture = Image.new("RGB", (width, height), (128, 128, 128))
            picture.paste(small, ((width - small.width) // 2, (height - small.height) // 2))
        else:
            picture = picture.resize((width, height), filter, reducing_gap=3.0)
        pixels = np.asarray(picture)
        if channels == 1:
            pixels = np.round(pixels @ np.array([0.299, 0.587, 0.114])).astype(np.uint8)[..., None]
        return pixels.transpose(2, 0, 1)[None].astype(np.float32) / np.float32(255)

    def read_text(self, body):
        """The words of a text by number, [1 t]; at least one."""
        numbers = self.tokenizer.encode(body.decode("utf-8"), add_special_tokens=False).ids
        return np.array([numbers[: int(self.notes["max_length"])] or [0]], dtype=np.int64)


class Handler(BaseHTTPRequestHandler):
    network: Network

    def do_GET(self):
        self.reply(200, {name: text for name, text in self.network.notes.items() if name != "vocabulary"})

    def do_POST(self):
        size = int(self.headers.get("Content-Length") or 0)
        if not 0 < size <= LARGEST:
            return self.reply(413 if size else 400, {"error": f"expected 1 to {LARGEST} bytes, got {size}"})
        try:
            found = self.network.answer(self.rfile.read(size))
        except (OSError, ValueError):
            wanted = "a text in UTF-8" if "vocabulary" in self.network.notes else "a picture"
            return self.reply(400, {"error": f"expected {wanted}, got something else"})
        return self.reply(200, found)

    def reply(self, status, content):
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main():
    parser = argparse.ArgumentParser(description="Answer over HTTP with a network from torchcaps export.")
    parser.add_argument("file", help="an ONNX file")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0 for any that is free")
    options = parser.parse_args()
    Handler.network = Network(options.file)
    with ThreadingHTTPServer((options.host, options.port), Handler) as server:
        print(f"http://{options.host}:{server.server_port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
