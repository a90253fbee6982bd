"""The family `mamba-trainer` from its own code: the folder models of infrabrew/mamba-recursive-model as packages/models. Recorded as
{"py": "mamba.py", "args": {...}} with inputs "custom" and build "real"; model_type "hybrid_recursive" takes the hybrid."""
import os, sys
import torch
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), 'packages'))


class LossAlone(torch.nn.Module):
    """What the trainer keeps of a forward."""
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, input_ids, labels): return self.net(input_ids, labels)[1]

    def example_inputs(self, batch, seq, device):
        ids = torch.randint(0, 100, (batch, seq), device=device)
        return dict(input_ids=ids, labels=ids)


def build(model_type='mamba', **args):
    from models.hybrid_recursive_mamba import create_hybrid_recursive_mamba_model
    from models.mamba_model import create_mamba_model
    return LossAlone((create_hybrid_recursive_mamba_model if model_type == 'hybrid_recursive' else create_mamba_model)(args))
