// The language models whose memory is one op: GSA gathers keys and values, Mamba scans over the tokens.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "allocator/timeline.h"
#include "model/registry.h"
#include "simulate.h"

namespace plimsoll::scan_and_gather_test {
namespace {

using Json = nlohmann::json;

Job job_of(const std::string& family, const Json& config, int64_t batch, int64_t seq, Precision precision = Precision::amp) {
  Job job;
  job.model = job.family = family;
  job.config = Config(family, config);
  job.inputs = find_model(family)->inputs;
  job.batch = batch;
  job.seq = seq;
  job.precision = precision;
  return job;
}

int64_t peak_of(const Job& job) { return ideal_timeline(simulate(job).trace).peak().bytes; }

// Parameters by the part of the model they belong to: what `part` makes of their names.
template <class F>
std::map<std::string, int64_t> parameters_of(const std::string& family, const Json& config, F part) {
  Tape tape;
  Build build(tape);
  const auto model = find_model(family)->make(build, Config(family, config));
  std::map<std::string, int64_t> out;
  for (const Parameter* p : model->parameters()) {
    const std::string path = tape.trace.scope_path(tape.scope_of(p->value));
    out[part(path)] += p->value.numel();
  }
  return out;
}

const Json kTinyGsa{{"n_layers", 2},     {"d_model", 64}, {"n_heads", 4}, {"n_kv_heads", 2}, {"d_ffn", 64},
                    {"vocab_size", 100}, {"k_base", 8},   {"k_max", 16},  {"k_min", 4},      {"max_position_embeddings", 64}};

TEST(Gsa, HasTheParametersOfItsFourConfigurations) {
  const auto all = [](const std::string&) { return "all"; };
  EXPECT_EQ(parameters_of("gsa", {}, all)["all"], 183'662'144);
  EXPECT_EQ(parameters_of("gsa", {{"d_model", 768}, {"n_layers", 12}, {"d_ffn", 2048}}, all)["all"], 319'555'680);
  EXPECT_EQ(parameters_of("gsa", {{"d_model", 896}, {"n_layers", 14}, {"d_ffn", 2304}}, all)["all"], 405'227'312);
  EXPECT_EQ(parameters_of("gsa", {{"n_layers", 6}, {"d_ffn", 1024}}, all)["all"], 171'923'760);
}

TEST(Gsa, HasTheParametersOfItsLayersPartByPart) {
  const auto parts = parameters_of("gsa", {}, [](const std::string& path) -> std::string {
    if (path.find("layers.") == std::string::npos) return path;
    const std::string layer = path.substr(path.find("layers.") + 7, 1);
    for (const char* part : {"indexer", "gate.", "mlp", "layernorm", "self_attn"})
      if (path.find(part) != std::string::npos) return layer + " " + part;
    return path;
  });
  for (const char* layer : {"0", "1", "2", "3", "4", "5", "6", "7"}) {
    EXPECT_EQ(parts.at(std::string(layer) + " self_attn"), 655'360);
    EXPECT_EQ(parts.at(std::string(layer) + " indexer"), 165'896);
    EXPECT_EQ(parts.at(std::string(layer) + " gate."), 328'320);
    EXPECT_EQ(parts.at(std::string(layer) + " mlp"), 2'359'296);
    EXPECT_EQ(parts.at(std::string(layer) + " layernorm"), 1'024);
  }
  EXPECT_EQ(parts.size(), 8u * 5 + 3);  // and the embedding, the last norm, the head
}

TEST(Gsa, ReadsTheSectionOfItsTrainingFiles) {
  Json nested = kTinyGsa;
  for (const char* key : {"k_base", "k_max", "k_min"}) {
    nested["gsa"][key] = nested[key];
    nested.erase(key);
  }
  EXPECT_EQ(peak_of(job_of("gsa", nested, 2, 32)), peak_of(job_of("gsa", kTinyGsa, 2, 32)));
}

TEST(Gsa, RotaryTablesGrowWithTheSequenceOnce) {
  Json longer = kTinyGsa;
  longer["max_position_embeddings"] = 80;
  const Timeline grown = ideal_timeline(simulate(job_of("gsa", kTinyGsa, 1, 80)).trace);
  const Timeline made = ideal_timeline(simulate(job_of("gsa", longer, 1, 80)).trace);
  EXPECT_EQ(grown.steps[1].bytes, made.steps[1].bytes);
}

TEST(Gsa, TheWidthOfTheGatherDecidesNotTheAverage) {
  Json narrow = kTinyGsa, wide = kTinyGsa;
  narrow["k_base"] = 4;
  wide["k_max"] = 32;
  EXPECT_EQ(peak_of(job_of("gsa", narrow, 2, 64)), peak_of(job_of("gsa", kTinyGsa, 2, 64)));
  EXPECT_GT(peak_of(job_of("gsa", wide, 2, 64)), peak_of(job_of("gsa", kTinyGsa, 2, 64)));
}

TEST(Gsa, HalfPrecisionWeightsFailAsInPyTorch) { EXPECT_THROW(simulate(job_of("gsa", kTinyGsa, 1, 32, Precision::bf16)), Error); }

const Json kTinyTrainer{{"n_layers", 2}, {"d_model", 64}, {"vocab_size", 100}, {"max_seq_len", 256}};

// Decay, input and state in fp32 and a half-precision copy of the state, for each of 16 states of 128 channels.
TEST(MambaTrainer, EveryTokenKeepsFourteenBytesOfEachState) {
  constexpr int64_t kStates = 2 * 128 * 16;
  const auto kept = [](int64_t tokens) {
    Job job = job_of("mamba-trainer", kTinyTrainer, 2, tokens);
    job.steps = 1;
    const Trace trace = simulate(job).trace;
    int64_t backward = 0;
    while (trace.events[static_cast<size_t>(backward)].kind != Event::Kind::phase ||
           trace.events[static_cast<size_t>(backward)].value != static_cast<uint8_t>(Phase::backward))
      ++backward;
    int64_t bytes = 0;
    for (const LiveStorage& s : alive_at(trace, backward)) {
      const int64_t size = trace.storages[s.id].bytes;
      if (size == kStates * 4 || size == kStates * 2) bytes += size;
    }
    return bytes;
  };
  EXPECT_EQ(kept(56) - kept(40), 16 * 2 * 14 * kStates);  // tokens, layers
}

// Of two blocks, one's states are there when it is computed again.
TEST(MambaTrainer, CheckpointedBlocksKeepNoStates) {
  Job job = job_of("mamba-trainer", kTinyTrainer, 2, 128);
  const int64_t plain = peak_of(job);
  job.checkpointing.on = true;
  EXPECT_GT(plain - peak_of(job), int64_t{128} * 14 * 2 * 128 * 16);
}

const Json kTinyMamba{{"num_hidden_layers", 2}, {"hidden_size", 64}, {"vocab_size", 100}};

TEST(Mamba, TheKernelsKeepNoStatesOfEveryToken) {
  Json slow = kTinyMamba;
  slow["use_mamba_kernels"] = false;
  EXPECT_LT(2 * peak_of(job_of("mamba", kTinyMamba, 2, 128)), peak_of(job_of("mamba", slow, 2, 128)));
}

TEST(Mamba, TheKernelsKeepAStateForEvery2048Tokens) {
  const auto states = [](int64_t tokens) {
    const Trace trace = simulate(job_of("mamba", kTinyMamba, 1, tokens)).trace;
    int64_t most = 0;
    for (const StorageRecord& s : trace.storages)
      if (s.phase == Phase::forward && trace.names[s.op] == "empty") most = std::max(most, s.bytes);
    return most;
  };
  EXPECT_EQ(states(2048), 128 * 32 * 4);
  EXPECT_EQ(states(2049), 2 * 128 * 32 * 4);
}

}  // namespace
}  // namespace plimsoll::scan_and_gather_test
