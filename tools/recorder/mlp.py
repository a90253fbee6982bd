"""The network of the family `mlp`: for each of linear_sizes a linear layer, [batch norm,] activation[, dropout]; a last linear
layer[, softmax]; cross entropy. Recorded as {"py": "mlp.py", "args": {...}} with inputs "custom": seq is the input size."""
import torch
import torch.nn.functional as F
from torch import nn

ACTIVATIONS = {'relu': nn.ReLU, 'leaky_relu': nn.LeakyReLU, 'elu': nn.ELU, 'selu': nn.SELU, 'gelu': nn.GELU, 'silu': nn.SiLU, 'mish': nn.Mish,
               'tanh': nn.Tanh, 'sigmoid': nn.Sigmoid, 'softplus': nn.Softplus, 'hardswish': nn.Hardswish}


class MLP(nn.Module):
    def __init__(self, input_size=784, output_size=10, linear_sizes=(512, 256), activation='relu', batch_norm=False, dropout=0.0,
                 final_softmax=False, bias=True):
        super().__init__()
        layers, width = [], input_size
        for size in linear_sizes:
            layers.append(nn.Linear(width, size, bias=bias))
            if batch_norm: layers.append(nn.BatchNorm1d(size))
            layers.append(ACTIVATIONS[activation]())
            if dropout > 0: layers.append(nn.Dropout(dropout))
            width = size
        layers.append(nn.Linear(width, output_size, bias=bias))
        if final_softmax: layers.append(nn.Softmax(dim=1))
        self.layers = nn.Sequential(*layers)

    def example_inputs(self, batch, seq, device):
        return dict(x=torch.empty(batch, seq, device=device, dtype=self.layers[0].weight.dtype),
                    labels=torch.zeros(batch, dtype=torch.long, device=device))

    def forward(self, x, labels):
        out = self.layers(x)
        return F.cross_entropy(out, labels)


def build(**args):
    return MLP(**args)
