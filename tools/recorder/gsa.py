"""The family `gsa`: Gated Sparse Attention from its authors' own code, the folder gsa of alfredcs/Gated-Sparse-Attention as packages/gsa
(its __init__.py may be empty). Recorded as {"py": "gsa.py", "args": {...}} with inputs "custom", build "real" and item seq - 1;
`ckpt` checkpoints every layer."""
import os, sys
import torch, torch.utils.checkpoint
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), 'packages'))

DEFAULTS = dict(d_model=512, n_layers=8, n_heads=8, n_kv_heads=2, d_ffn=1536, vocab_size=151936, max_position_embeddings=8192, d_indexer=64,
                n_indexer_heads=4, k_base=512, k_min=64, k_max=1024)


def example_inputs(batch, seq, device):
    ids = torch.randint(0, 100, (batch, seq), device=device)
    return dict(input_ids=ids, labels=ids)


def build(ckpt=True, **args):
    from gsa.config import GSAConfig
    from gsa.models.gsa_llama import GSALlamaForCausalLM
    net = GSALlamaForCausalLM(GSAConfig(**{**DEFAULTS, **args}))
    net.model.gradient_checkpointing = ckpt
    net.example_inputs = example_inputs
    return net
