// Where the AI Toolkit's document and its code part, with the figures of the question at hand.
#include <fmt/format.h>

#include "systems/ai_toolkit/document.h"
#include "systems/ai_toolkit/tuner.h"

namespace plimsoll::ai_toolkit {

namespace {

std::string gb(double n) { return fmt::format("{} GB", std::stod(to_fixed(n, 2))); }

Difference batch(const Question& q, const CodeAnswer& code, const DocumentAnswer& document) {
  const std::string why = !q.profile.unified ? "this version divides by 8 and 10 above 1024 px, where the document has 10 and 12"
                          : code.budget      ? fmt::format("{} against {} for batches of {} a sample", gb(code.budget->available),
                                                           gb(document.budget->available), gb(code.budget->per_sample))
                                             : "this version takes 70 % of the pool for video memory";
  return {"batch size", fmt::format("{}, at most {}", code.batch.batch_size, code.batch.max_batch_size),
          fmt::format("{}, at most {}", document.batch_size, document.max_batch_size), why};
}

Difference weights(const Question& q) {
  return {"the model's weights",
          fmt::format("{} where the batch is worked out, {} in the estimate", gb(batch_model_gb(q.arch)), gb(estimate_model_gb(q.arch))),
          gb(document_weights_gb(q.arch, Quantization::none)), "the code's two functions do not mean the same model"};
}

Difference optimizer(const Question& q, const CodeAnswer& code) {
  const double base = estimate_model_gb(q.arch) *
                      (q.quantization == Quantization::four_bit    ? 0.5
                       : q.quantization == Quantization::eight_bit ? 0.75
                                                                   : 1) *
                      (code.gradient_checkpointing ? 0.7 : 1);
  return {"optimizer states",
          fmt::format("4 GB with EMA in the batch, {} in the estimate", q.profile.unified ? gb(2 * base) : std::string("nothing")),
          fmt::format("about 4 GB, or 2 to 4 GB, for LoRA; twice the weights ({}) in its examples",
                      gb(2 * document_weights_gb(q.arch, q.quantization))),
          "none of them follows what is trained: Adam keeps two values for each weight of the adapter, and the default optimizer "
          "keeps them in 8 bits"};
}

Difference quantization(const Question& q) {
  const bool four = q.quantization == Quantization::four_bit;
  return {
      "quantised weights",
      fmt::format("x {} in the estimate ({}), none in the batch", four ? 0.5 : 0.75, gb(estimate_model_gb(q.arch) * (four ? 0.5 : 0.75))),
      fmt::format("x {} ({})", four ? 0.25 : 0.5, gb(document_weights_gb(q.arch, q.quantization))),
      "quantising does not change the batch that the code proposes"};
}

Difference checkpointing(const Question& q) {
  return {"gradient checkpointing",
          fmt::format("weights x 0.7: {} less",
                      gb(-calculate_regularization_memory_cost(q.arch, false, false, true).gradient_checkpointing_savings)),
          "30 % of the activations, 4 to 8 GB", "the code takes it from the weights: neither resolution nor batch changes it"};
}

Difference ema(const Question& q) {
  return {"EMA", "1 GB in the estimate, for a full fine-tuning too; in the batch it is in the 4 GB of the optimizer, on or off",
          q.target == TargetType::full ? fmt::format("the weights again, {}", gb(document_weights_gb(q.arch, Quantization::none)))
                                       : "1 GB for LoRA, 14 to 28 GB for a full model",
          "the code works out the full model's share and drops it"};
}

std::vector<Difference> always(const Question& q) {
  std::vector<Difference> out{
      {"what the pages show", "the estimate without unified memory, EMA and preservation: they pass five of nine arguments",
       "all of them count", "on unified memory the figure shown lacks workers, system and optimizer"},
      {"auto_scale_batch_size", "an OOM skips the batch; the tuner's value is printed and the DataLoader keeps its own; it never grows",
       "the batch shrinks by 25 %, the step is tried again, and the batch grows when all is well",
       fmt::format("from 16 the label goes to {}, the memory stays", fmt::join(oom_sequence(16, 1), ", "))},
      {"largest batch on a card", "2, at most 4, from 1025 to 1536 px", "4, at most 8", "the document's one table is the unified one"},
      {"its second example", "2: more than 1536 px are capped", "3 at 2048 px", "the example forgets the document's own cap"},
      {"arguments", "modelArch and numWorkers must be given", "modelArch = 'flux', numWorkers = 4",
       "a call as documented does not compile"},
      {"a worker's memory", "8 GB", "8 GB, 4 GB with small models", "no measurement behind either; the dataset decides"}};
  if (q.version > Version::v1 && q.version < Version::v6)
    out.push_back({"step time on unified memory", "x 0.8 from 24 GB on: the type it asks for, apple_silicon, had been renamed", "-",
                   "a unified system counts as a fast card; v6 puts x 1.5 in its place"});
  if (q.arch == "flux_kontext")
    out.push_back({"flux_kontext", "10 GB in the table for regularisation, 12 GB in the estimate", "24 GB", "left out of one table"});
  return out;
}

}  // namespace

std::vector<Difference> differences(const Question& q) {
  const CodeAnswer code = code_answer(q);
  const DocumentAnswer document = document_answer(q);
  std::vector<Difference> out;
  if (code.batch.batch_size != document.batch_size || code.batch.max_batch_size != document.max_batch_size)
    out.push_back(batch(q, code, document));
  out.push_back(weights(q));
  out.push_back(optimizer(q, code));
  if (q.quantization != Quantization::none) out.push_back(quantization(q));
  if (code.gradient_checkpointing) out.push_back(checkpointing(q));
  if (q.ema) out.push_back(ema(q));
  for (Difference& d : always(q)) out.push_back(std::move(d));
  return out;
}

}  // namespace plimsoll::ai_toolkit
