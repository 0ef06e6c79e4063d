"""What each command does. Heavy modules are imported inside, so that help answers at once."""

from collections.abc import Callable

from torchcaps.commands.answers import explain_command, predict_command, similar_command
from torchcaps.commands.attack import attack_command
from torchcaps.commands.evaluate import evaluate_command
from torchcaps.commands.jumble import jumble_command
from torchcaps.commands.small import bench_command, list_command
from torchcaps.commands.strange import strange_command
from torchcaps.commands.train import train_command

COMMANDS: dict[str, Callable[[list[str]], None]] = {
    "train": train_command,
    "evaluate": evaluate_command,
    "predict": predict_command,
    "explain": explain_command,
    "similar": similar_command,
    "attack": attack_command,
    "jumble": jumble_command,
    "strange": strange_command,
    "list": list_command,
    "bench": bench_command,
}
