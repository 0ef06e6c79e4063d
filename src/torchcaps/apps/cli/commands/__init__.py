"""What each command does. Heavy modules are imported inside, so that help answers at once."""

from collections.abc import Callable

from torchcaps._core.extensions import Registry
from torchcaps.apps.cli.commands.attack import attack_command
from torchcaps.apps.cli.commands.bench import bench_command
from torchcaps.apps.cli.commands.compare import compare_command, viewpoint_command
from torchcaps.apps.cli.commands.doctor import doctor_command
from torchcaps.apps.cli.commands.draw import draw_command
from torchcaps.apps.cli.commands.evaluate import evaluate_command
from torchcaps.apps.cli.commands.explain import explain_command
from torchcaps.apps.cli.commands.export import export_command
from torchcaps.apps.cli.commands.health import health_command
from torchcaps.apps.cli.commands.jumble import jumble_command
from torchcaps.apps.cli.commands.listing import list_command
from torchcaps.apps.cli.commands.predict import predict_command
from torchcaps.apps.cli.commands.report import report_command
from torchcaps.apps.cli.commands.similar import similar_command
from torchcaps.apps.cli.commands.strange import strange_command
from torchcaps.apps.cli.commands.studio import studio_command
from torchcaps.apps.cli.commands.train import train_command

_OWN: dict[str, Callable[[list[str]], None]] = {
    "train": train_command,
    "evaluate": evaluate_command,
    "predict": predict_command,
    "report": report_command,
    "export": export_command,
    "explain": explain_command,
    "health": health_command,
    "attack": attack_command,
    "jumble": jumble_command,
    "strange": strange_command,
    "similar": similar_command,
    "compare": compare_command,
    "viewpoint": viewpoint_command,
    "draw": draw_command,
    "studio": studio_command,
    "list": list_command,
    "bench": bench_command,
    "doctor": doctor_command,
}
# A command is a function of the words behind its name; the first line of its docstring is its line of help.
COMMANDS: Registry[Callable[[list[str]], None]] = Registry("torchcaps.commands", _OWN)
