#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
export PYTORCH_ALLOC_CONF=expandable_segments:True
BATCH=5
GPUS=${GPUS:-4}
srun torchrun --nproc_per_node $GPUS --nnodes $SLURM_NNODES train.py \
  --model_name_or_path gpt2 --per_device_train_batch_size ${BATCH} \
  --optim adamw_8bit
