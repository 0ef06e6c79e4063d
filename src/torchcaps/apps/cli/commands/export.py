"""The command that writes a network for other tools. Heavy modules are imported inside."""

from __future__ import annotations

from torchcaps.apps.cli.parsing import parse


def export_command(words: list[str]) -> None:
    from torchcaps.apps.cli.options import Export

    examples = """\
  torchcaps export runs/mine
  torchcaps export runs/mine --onnx --out mine.onnx
  torchcaps export runs/mine --torch"""
    options = parse(Export, words, "export", examples)
    from torchcaps._core.errors import input_error

    if options.onnx and options.torch:
        raise input_error("export", "one of --onnx and --torch", "both", "Call it twice.")
    from torchcaps.apps.export import export_run
    from torchcaps.runs.run import Run

    found = export_run(Run.open(options.run), options.out, "torch" if options.torch else "onnx")
    print(f"file: {found.path}")
    print(f"takes {found.input}")
    print(f"gives activations and poses; tried: activations equal to {found.difference:.0e}")
