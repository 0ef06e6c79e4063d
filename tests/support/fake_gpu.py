"""Everything of a training step forwards on a CUDA device that is not there: `python -m tests.support.fake_gpu FOLDER`.

Fake tensors know device, dtype and shape, and refuse to meet a tensor of another device. A torch without CUDA lacks the
guard that switches devices; a line of C++ that does nothing takes its place. Gradients need the real one.
"""

import ctypes
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

import torchcaps as tc
from torchcaps.data import AUGMENTATIONS

DEVICE = torch.device("cuda:0")
GUARD = """
#include <c10/core/impl/DeviceGuardImplInterface.h>
C10_REGISTER_GUARD_IMPL(CUDA, c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA>);
"""


def load_guard(folder: Path) -> None:
    source, library = folder / "guard.cpp", folder / "guard.so"
    source.write_text(GUARD)
    torch_folder = Path(torch.__file__).parent
    includes, libraries = f"-I{torch_folder / 'include'}", f"-L{torch_folder / 'lib'}"
    command = ["c++", "-std=c++20", "-shared", "-fPIC", str(source), includes, libraries, "-lc10", "-o", str(library)]
    subprocess.run(command, check=True)
    ctypes.CDLL(str(library))
    torch.cuda.mem_get_info = lambda device=None: (2**33, 2**33)
    torch.cuda.is_available = lambda: True  # for autocast


def move(mode: FakeTensorMode, module: nn.Module) -> nn.Module:
    """The module with fake tensors on the device: `module.to` would ask CUDA."""
    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False):
            fake = FakeTensor(mode, torch.empty_like(parameter, device="meta"), DEVICE)
            part._parameters[name] = nn.Parameter(fake)
        for name, buffer in part.named_buffers(recurse=False):
            part._buffers[name] = FakeTensor(mode, torch.empty_like(buffer, device="meta"), DEVICE)
    return module


def images_of(name: str) -> None:
    """A step of an image model: augmentations, the network, its losses and reconstruction; again under autocast."""
    model = tc.create_model(name, image_shape=(3, 28, 28), classes=5)
    decoder = tc.DenseDecoder(5, 16, (3, 28, 28))
    mode = FakeTensorMode()
    move(mode, model)
    move(mode, decoder)
    with mode:
        images, labels = torch.rand(4, 3, 28, 28, device=DEVICE), torch.randint(5, (4,), device=DEVICE)
        for augment in AUGMENTATIONS.values():
            assert augment(images).device == DEVICE
        for dtype in (None, torch.float16):
            with torch.autocast("cuda", dtype, enabled=dtype is not None):
                capsules = model(images)
                assert capsules.poses.device == capsules.activations.device == DEVICE
                losses = [tc.margin_loss(capsules.activations, labels), tc.spread_loss(capsules.activations, labels)]
                if capsules.poses.shape[-1] == 16:
                    losses.append(tc.reconstruction_loss(decoder(capsules, labels), images))
            assert {loss.device for loss in losses} == {DEVICE}
    print(name)


def texts_of(name: str) -> None:
    """A text model on numbers of words."""
    model = tc.create_model(name, vocabulary=30, classes=5)
    mode = FakeTensorMode()
    move(mode, model)
    with mode:
        capsules = model(torch.randint(1, 30, (4, 12), device=DEVICE))
        assert capsules.poses.device == DEVICE
    print(name)


def mixes() -> None:
    """Tensors of two devices do not meet: what the rest of this file relies on."""
    with FakeTensorMode():
        try:
            torch.rand(3, device=DEVICE) + torch.rand(3)
        except RuntimeError:
            print("two devices refused")


if __name__ == "__main__":
    load_guard(Path(sys.argv[1]))
    mixes()
    for each in ("efficient", "capsnet", "matrix-small", "deep", "cnn-small"):
        images_of(each)
    for each in ("text", "text-a", "text-b", "textcnn"):
        texts_of(each)
