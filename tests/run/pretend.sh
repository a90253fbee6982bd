#!/bin/sh
# A training run for demonstrations without PyTorch: it runs out of memory while BATCH is above CAPACITY, or WORKERS above MOST_WORKERS.
echo "attempt $PLIMSOLL_ATTEMPT: batch $BATCH x ${ACCUMULATION:-1}, ${WORKERS:-0} workers $*"
if [ "${WORKERS:-0}" -gt "${MOST_WORKERS:-99}" ]; then
  echo "RuntimeError: DataLoader worker (pid 4242) is killed by signal: Killed." >&2
  exit 1
fi
if [ "${BATCH:-1}" -gt "${CAPACITY:-2}" ]; then
  echo "step 1/3"
  echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 7.79 GiB of which 1.02 GiB is free." \
    "Process 1234 has 6.77 GiB memory in use. Of the allocated memory 6.20 GiB is allocated by PyTorch, and 89.00 MiB is reserved by PyTorch but unallocated." >&2
  exit 1
fi
echo "step 3/3 done"
