"""Steps per second of PyTorch's Python on the networks of `parity-trainer`.

`pytorch_speed.py NETWORK BATCH STEPS THREADS` prints one number. The loop is what PyTorch's own examples do: forward, mean
squared error, backward, AdamW (PyTorch's default on a CPU, one pass for all parameters where it has one). The parity queries
are ready before the clock starts, which the trainer's loop has to make as it goes.
"""

import sys
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """He et al. 2015, figure 2, with a 1 x 1 convolution where shapes differ."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity()
        if inputs != outputs or stride != 1:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x):
        main = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(main + self.shortcut(x))


def network(name):
    family, _, width = name.partition(":")
    width = int(width)
    if family == "lenet":
        return nn.Sequential(
            nn.Conv2d(1, width, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(2 * width * 16, 8 * width), nn.ReLU(), nn.Linear(8 * width, 10),
        )
    if family == "resnet8":
        return nn.Sequential(
            nn.Conv2d(1, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            Block(width, width, 1), Block(width, 2 * width, 2), Block(2 * width, 4 * width, 2),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 10),
        )
    if family == "mlp":
        return nn.Sequential(
            nn.Flatten(), nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
        )
    raise SystemExit(f"no network {name}")


def main():
    name, batch, steps, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = network(name)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    inputs, targets = torch.rand(16, batch, 1, 28, 28), torch.rand(16, batch, 10)

    def step(at):
        optimiser.zero_grad()
        loss = F.mse_loss(model(inputs[at % 16]), targets[at % 16])
        loss.backward()
        optimiser.step()
        return loss.item()

    for at in range(10):
        step(at)
    begun = time.perf_counter()
    for at in range(steps):
        step(at)
    print(steps / (time.perf_counter() - begun))


if __name__ == "__main__":
    main()
