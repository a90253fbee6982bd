#include "cli/flag_aliases.h"

namespace plimsoll {

namespace {

constexpr const char* kNoMemory =
    "it changes no memory: leave it out; a whole command is read behind --: plimsoll estimate -- python train.py ...";
constexpr const char* kRanks =
    "estimate answers for one rank: --fsdp world=8, --ddp world=8 or --zero world=8,stage=2; layouts: plimsoll plan --num-gpus 8";
constexpr const char* kMixed = "bf16=amp,fp16=amp-fp16,no=fp32";
constexpr const char* kKernels = "flash_attention_2=flash-attention-2,sdpa=auto,flash_attn=flash-attention-2,xformers=efficient";

constexpr FlagAlias kAliases[] = {
    {"--batch-size", "--batch"},
    {"--batchsize", "--batch"},
    {"--bs", "--batch"},
    {"--micro-batch-size", "--batch"},
    {"--micro-batch", "--batch"},
    {"--per-device-train-batch-size", "--batch"},
    {"--train-batch-size", "--batch"},
    {"--device-batch-size", "--batch"},
    {"--per-device-eval-batch-size", "--eval-batch"},
    {"--eval-batch-size", "--eval-batch"},

    {"--seq-len", "--seq"},
    {"--seqlen", "--seq"},
    {"--seq-length", "--seq"},
    {"--sequence-len", "--seq"},
    {"--sequence-length", "--seq"},
    {"--max-length", "--seq"},
    {"--max-len", "--seq"},
    {"--max-seq-length", "--seq"},
    {"--max-seq-len", "--seq"},
    {"--max-sequence-length", "--seq"},
    {"--model-max-length", "--seq"},
    {"--context-length", "--seq"},
    {"--ctx-len", "--seq"},
    {"--block-size", "--seq"},
    {"--cutoff-len", "--seq"},
    {"--resolution", "--seq"},
    {"--image-size", "--seq"},

    {"--bf16", "--precision", "amp",
     "--bf16 is read as transformers means it, --precision amp: fp32 weights under bf16 autocast; bf16 weights: --precision bf16"},
    {"--fp16", "--precision", "amp-fp16",
     "--fp16 is read as transformers means it, --precision amp-fp16: fp32 weights under fp16 autocast; fp16 weights: --precision fp16"},
    {"--fp32", "--precision", "fp32"},
    {"--amp", "--precision", "amp"},
    {"--mixed-precision", "--precision", "", "", kMixed},
    {"--dtype", "--precision"},
    {"--torch-dtype", "--precision"},

    {"--gradient-checkpointing", "--checkpointing"},
    {"--grad-checkpointing", "--checkpointing"},
    {"--activation-checkpointing", "--checkpointing"},
    {"--use-gradient-checkpointing", "--checkpointing"},
    {"--recompute-activations", "--checkpointing"},
    {"--flash-attn", "--attention", "flash-attention-2"},
    {"--use-flash-attention-2", "--attention", "flash-attention-2"},
    {"--attn-implementation", "--attention", "", "", kKernels},
    {"--attn", "--attention", "", "", kKernels},
    {"--xformers", "--attention", "efficient"},
    {"--blocks-to-swap", "--swap-blocks"},
    {"--torch-compile", "--compile"},

    {"--lora-r", "--lora", "r={}"},
    {"--lora-rank", "--lora", "r={}"},
    {"--lora-alpha", "--lora", "lora_alpha={}"},
    {"--lora-dropout", "--lora", "lora_dropout={}"},
    {"--lora-target-modules", "--lora", "target_modules={}"},
    {"--load-in-4bit", "--quantization", "nf4"},
    {"--load-in-8bit", "--quantization", "int8"},

    {"--optim", "--optimizer"},
    {"--gradient-accumulation-steps", "--accumulation"},
    {"--gradient-accumulation", "--accumulation"},
    {"--grad-accumulation", "--accumulation"},
    {"--grad-accum", "--accumulation"},
    {"--accumulation-steps", "--accumulation"},
    {"--max-grad-norm", "--clip"},
    {"--grad-clip", "--clip"},
    {"--gradient-clipping", "--clip"},
    {"--use-ema", "--ema"},
    {"--num-workers", "--workers"},
    {"--dataloader-num-workers", "--workers"},

    {"-m", "--model"},
    {"--model-name", "--model"},
    {"--model-id", "--model"},
    {"--model-path", "--model"},
    {"--model-name-or-path", "--model"},
    {"--base-model", "--model"},
    {"--pretrained-model-name-or-path", "--model"},

    {"--device", "--gpu"},
    {"--gpu-name", "--gpu"},
    {"--gpu-type", "--gpu"},
    {"--gpu-memory", "--gpu"},
    {"--vram", "--gpu"},
    {"--world-size", "--world"},
    {"--nproc-per-node", "--num-gpus"},
    {"--n-gpus", "--num-gpus"},
    {"--num-devices", "--num-gpus"},
    {"--num-gpus", "", "", kRanks},
    {"--world-size", "", "", kRanks},
    {"--nproc-per-node", "", "", kRanks},
    {"--n-gpus", "", "", kRanks},
    {"--num-devices", "", "", kRanks},
    {"--zero-stage", "--zero", "stage={}"},
    {"--tensor-parallel-size", "--tensor-parallel", "world={}"},
    {"--tp", "--tensor-parallel", "world={}"},

    {"--rules", "", "", "the AI Toolkit's rules are a command of their own: plimsoll ai-toolkit"},
    {"--no-color", "--color", "never"},
    {"--colour", "--color"},

    {"--lr", "", "", kNoMemory},
    {"--learning-rate", "", "", kNoMemory},
    {"--lr-scheduler-type", "", "", kNoMemory},
    {"--weight-decay", "", "", kNoMemory},
    {"--epochs", "", "", kNoMemory},
    {"--num-epochs", "", "", kNoMemory},
    {"--num-train-epochs", "", "", kNoMemory},
    {"--max-steps", "", "", kNoMemory},
    {"--warmup-steps", "", "", kNoMemory},
    {"--warmup-ratio", "", "", kNoMemory},
    {"--seed", "", "", kNoMemory},
    {"--dataset", "", "", kNoMemory},
    {"--dataset-name", "", "", kNoMemory},
    {"--output-dir", "", "", kNoMemory},
    {"--logging-steps", "", "", kNoMemory},
    {"--report-to", "", "", kNoMemory},
};

}  // namespace

std::span<const FlagAlias> flag_aliases() { return kAliases; }

}  // namespace plimsoll
