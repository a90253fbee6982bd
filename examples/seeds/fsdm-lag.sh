#!/bin/sh
# Few-shot diffusion in lag mode, on the eight devices of a TPU host.
python main_jax.py \
  --model vfsddpm_jax --encoder_mode vit_set --dataset cifar100 --image_size 32 --patch_size 2 \
  --batch_size 32 --sample_size 6 --hidden_size 468 --depth 6 --num_heads 9 --mlp_ratio 3.0 \
  --encoder_depth 6 --encoder_heads 12 --encoder_dim_head 64 --encoder_mlp_ratio 1.0 \
  --hdim 256 --context_channels 256 --mode_conditioning lag --dropout 0.0 \
  --lr 1e-4 --diffusion_steps 250 --ema_rate 0.9999
