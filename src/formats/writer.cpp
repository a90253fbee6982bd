#include "formats/writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "formats/command_edit.h"
#include "formats/command_line.h"
#include "formats/format.h"
#include "formats/input.h"
#include "formats/launch.h"
#include "formats/manual_steps.h"
#include "formats/placed.h"
#include "job/distribution.h"
#include "job/fields.h"
#include "job/settings.h"
#include "util/text.h"

namespace plimsoll {

namespace {

using Json = nlohmann::json;

// PyTorch before 2.9 knows this name alone, and later ones take it, too.
constexpr const char* kAllocator = "PYTORCH_CUDA_ALLOC_CONF";

bool is_command(const Document& d) { return d.kind == Document::Kind::command || d.kind == Document::Kind::text; }

// A document, or the one command of a script that is meant.
struct Source {
  const Document& document;
  const Format* format = nullptr;
  size_t command = 0;  // of script_commands
  Document settings;   // of a command: its flags on top of the file that it names
  FlagStyle flags = FlagStyle::none;

  explicit Source(const Document& d) : document(d) {
    if (is_command(d)) {
      const std::vector<ScriptCommand> commands = script_commands(d.text, d.name);
      for (size_t i = commands.size(); i-- > 0 && !format;) {
        if (commands[i].document.value["program"] == "") continue;
        format = format_of(commands[i].document);
        command = i;
        if (format) settings = settings_of_command(commands[i].document);
      }
    } else {
      format = format_of(d);
    }
    if (!format || !format->writes)
      throw Error(fmt::format("[{}] holds no settings of a training run that could be changed", d.name),
                  "point at the trainer's configuration, command or script");
    if (flags == FlagStyle::none) flags = format->writes().flags;
  }

  const SettingsEncoder& writes() const { return format->writes(); }
  const Json& file() const { return is_command(document) ? settings.value : document.value; }

 private:
  Document settings_of_command(Document command) {
    command.path = document.path;
    Job unused;
    Reader reader(unused, command);
    Document out = settings_of(reader, {"config", "config_file", "job.config_file"});
    const Format* named = out.kind == Document::Kind::command ? nullptr : format_of(out);
    if (named && named != format)
      throw Error(fmt::format("[{}] the command takes its settings from {}", document.name, out.path), "change that file");
    if (format->writes && format->writes().flags == FlagStyle::none)
      throw Error(fmt::format("[{}] {} takes its settings from a file, not from flags", document.name,
                              printable(command.value.value("program", ""), 60)),
                  "change that file");
    // key=value goes with a file; without one there are flags
    bool file = command.value["flags"].contains("config");
    for (const Json& argument : command.value["arguments"])
      file = file || argument.get<std::string>().find_first_of(".=") != std::string::npos;
    if (format->writes && format->writes().flags == FlagStyle::words && !file) flags = FlagStyle::values;
    return out;
  }
};

Document parsed_again(const Document& original, const std::string& text) {
  Document d =
      original.kind == Document::Kind::command ? command_document(shell_words(text), original.name) : parse_document(text, original.path);
  d.name = original.name;
  d.depth = original.depth;
  return d;
}

// Files of DeepSpeed and of TrainingArguments alone do not say how many processes there are.
Job read_of(const Document& d, const Format& format, const Job& before) {
  Job job;
  job.platform = before.platform;
  const std::string name = format.name;
  if (world_size(before) > 1 && (name == "deepspeed" || (name == "hf_training_arguments" && !is_command(d))))
    apply_setting(job, "ddp", {{"world", world_size(before)}}, "launcher");
  read_input_document(job, d);
  return job;
}

// ---- what was asked for

// Fields that a trainer decides about itself.
bool is_trainers_own(const std::string& setting, const std::string& field) {
  static const std::set<std::string> kOwn{"quantization.prepare",
                                          "quantization.compute_dtype",
                                          "lora.dtype",
                                          "lora.autocast_adapter_dtype",
                                          "lora.implementation",
                                          "zero1.ddp",
                                          "zero1.rank",
                                          "zero1.parameter_view",
                                          "zero.rank",
                                          "fsdp.rank",
                                          "fsdp.param_dtype",
                                          "fsdp.reduce_dtype"};
  return kOwn.contains(setting + "." + field);
}

std::set<std::string> named_fields(const std::string& setting, Json value) {
  if (value.is_string() && value.get<std::string>().find('=') != std::string::npos)
    value = read_pairs(split_at(value.get<std::string>(), ','), setting, "key=value,key=value");
  std::set<std::string> fields;
  if (value.is_string()) fields.insert("type");
  if (value.is_object())
    for (const auto& item : value.items())
      fields.insert(item.key() == "lora_alpha" ? "alpha" : item.key() == "lora_dropout" ? "dropout" : item.key());
  return fields;
}

// Of a mapping, the fields that were named have to be as asked.
bool is_as_asked(const std::string& setting, const Json& change, const Json& asked, const Json& got) {
  if (asked == got) return true;
  if (!asked.is_object() || !got.is_object()) return false;
  for (const std::string& field : named_fields(setting, change))
    if (!is_trainers_own(setting, field) && asked.value(field, Json()) != got.value(field, Json())) return false;
  return true;
}

// Settings that a trainer works out from another one: read anew, they may be others.
bool may_follow(const std::string& setting, const std::string& changed) {
  static const std::map<std::string, std::set<std::string>> kFollow{
      {"batch", {"eval_batch", "lengths"}},
      {"seq", {"lengths", "config"}},
      {"precision", {"autocast", "quantization", "master_weights", "lora", "loss_scaling"}},
      {"autocast", {"precision"}},
      {"checkpointing", {"ddp", "offload_activations"}},
      {"optimizer", {"optimizer_args"}},
      {"optimizer_args", {"optimizer"}},
      {"lora", {"ddp", "precision", "autocast", "quantization"}},
      {"quantization", {"config", "precision", "autocast", "lora"}},
      {"attention", {"lengths", "collate"}},
      {"loss_kernel", {"liger_kernels"}},
      {"liger_kernels", {"loss_kernel"}},
      {"ema", {"ema_update"}},
      {"workers", {"prefetch_factor", "persistent_workers", "pin_memory"}},
      {"ddp", {"ranks_per_host"}},
      {"zero1", {"ddp", "master_weights"}},
      {"zero", {"ddp", "master_weights", "ranks_per_host"}},
      {"fsdp", {"ddp", "ranks_per_host"}},
  };
  const auto it = kFollow.find(changed);
  return it != kFollow.end() && it->second.contains(setting);
}

// ---- the way there

struct Plan {
  std::vector<KeyEdit> edits;
  std::map<std::vector<std::string>, std::vector<std::string>> names;  // of their paths: the key as a flag says it, outside of any section
  std::vector<NotWritten> not_written;
  Patch encoded;                         // those that are written
  std::optional<std::string> allocator;  // as a variable
};

std::vector<std::string> path_of(const Source& s, const std::string& key) {
  if (is_command(s.document)) return split_at(key, '.');
  return split_at(s.writes().place ? s.writes().place(s.document.value, key) : key, '.');
}

void add_edit(Plan& plan, const KeyEdit& edit) {
  for (KeyEdit& known : plan.edits)
    if (known.path == edit.path) {
      known.value = edit.value;
      return;
    }
  plan.edits.push_back(edit);
}

// Another file, which this one names, says it.
std::string other_place(const Source& s, const Job& now, const std::string& setting) {
  const auto it = now.origin.find(setting);
  if (it == now.origin.end() || is_command(s.document) || s.format->rank == Rank::job) return "";
  const std::string& origin = it->second;
  if (origin.starts_with("default of") || origin.starts_with(s.document.name + ": ") || origin.find(": ") == std::string::npos) return "";
  return origin;
}

// As the format's table has them, then those that it has no key for.
Patch::Values in_order_of(const SettingsEncoder& writes, const Patch& changes) {
  Patch::Values out;
  Patch left = changes;
  for (const KeyEncoder& k : writes.keys) {
    if (const Json* value = left.find(k.setting)) out.emplace_back(k.setting, *value);
    left.erase(k.setting);
  }
  for (auto& rest : left.in_order()) out.push_back(std::move(rest));
  return out;
}

Plan plan_for(const Source& s, const Job& now, const Patch& changes) {
  Plan plan;
  const Job asked = patched(now, changes, "plan");
  const EncodeRequest wanted{now, asked, s.file(), s.writes()};
  for (const auto& change : in_order_of(s.writes(), changes)) {
    const std::string& setting = change.first;
    const nlohmann::json& value = change.second;
    const std::vector<KeyEncoder>& keys = s.writes().keys;
    const auto key = std::find_if(keys.begin(), keys.end(), [&](const KeyEncoder& k) { return setting == k.setting; });
    if (key == keys.end() && setting == "alloc_conf") {
      plan.allocator = asked.alloc_conf;
      plan.encoded.set(setting, value);
      continue;
    }
    Encoded encoded;
    if (const std::string other = other_place(s, now, setting); !other.empty())
      encoded.instead = "it is said elsewhere (" + other + "): change it there";
    else if (key != keys.end() && key->encode)
      encoded = key->encode(wanted);
    else if (key != keys.end())
      encoded.keys.push_back({key->key, value});
    if (encoded.keys.empty() && encoded.instead.empty() && value_of(now, setting) == value_of(asked, setting))
      continue;  // as it is already
    if (encoded.keys.empty()) {
      plan.not_written.push_back({setting, value, encoded.instead.empty() ? manual_step(setting, asked) : encoded.instead});
      continue;
    }
    plan.encoded.set(setting, value);
    for (const KeyValue& k : encoded.keys) {
      add_edit(plan, {path_of(s, k.key), k.value});
      plan.names[path_of(s, k.key)] = split_at(k.key, '.');
    }
  }
  return plan;
}

const Json* value_at(const Json& value, const std::vector<std::string>& path) {
  const Json* at = &value;
  for (const std::string& key : path) {
    if (at->is_array()) {
      const Json number = parse_scalar(key);
      if (!number.is_number_integer() || number.get<int64_t>() < 0 || number.get<size_t>() >= at->size()) return nullptr;
      at = &(*at)[number.get<size_t>()];
    } else {
      if (!at->is_object() || !at->contains(key)) return nullptr;
      at = &(*at)[key];
    }
  }
  return at;
}

// Values that are as they shall be need no edit, nor do absent ones that shall be none.
void drop_idle(Plan& plan, const Json& file) {
  std::erase_if(plan.edits, [&](const KeyEdit& e) {
    const Json* old = value_at(file, e.path);
    return old ? *old == e.value : e.value.is_null() || e.value.is_discarded();
  });
}

std::string edited(const Source& s, const Plan& plan) {
  const Document& d = s.document;
  if (!is_command(d)) {
    for (const KeyEdit& edit : plan.edits) {
      const Json* old = value_at(d.value, edit.path);
      if (old && old->is_string() && old->get<std::string>().starts_with("${"))
        throw Error(fmt::format("[{}] {} cannot be written: it takes the value of {}", d.name, shown(edit.path), old->get<std::string>()),
                    "write the value out there");
      for (const std::string& twice : d.duplicates)
        if (std::find(edit.path.begin(), edit.path.end(), twice) != edit.path.end())
          throw Error(fmt::format("[{}] {} cannot be written: '{}' is there twice", d.name, shown(edit.path), printable(twice, 60)),
                      "keep one of them");
    }
    return edit_settings(d.text, d.kind, d.name, plan.edits);
  }
  std::string text = edit_flags(d.text, d.name, s.command, s.flags, plan.edits);
  if (!plan.allocator) return text;
  std::string variable = kAllocator;
  for (const char* known : {"PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", kAllocator})
    if (script_commands(text, d.name)[s.command].document.value["environment"].contains(known)) variable = known;
  return edit_environment(text, d.name, s.command, variable, *plan.allocator);
}

// The new text has the new values, and all others as they were.
void check_values(const Source& s, const Plan& plan, const Document& now) {
  if (is_command(s.document)) return;
  Json expected = s.document.value;
  for (const KeyEdit& edit : plan.edits) edit_value(expected, edit);
  if (expected != now.value)
    throw Error(fmt::format("[{}] the new text does not read as it should", s.document.name), "edit the file by hand");
}

int refusals(const Job& job) {
  return static_cast<int>(std::count_if(job.findings.begin(), job.findings.end(),
                                        [](const Finding& f) { return f.effect == Effect::refused || f.effect == Effect::conflict; }));
}

// Settings that are not what was asked for.
std::vector<std::string> wrong_settings(const Patch& changes, const Job& asked, const Job& got) {
  std::vector<std::string> wrong;
  for (const auto& [setting, value] : changes)
    if (!is_as_asked(setting, value, value_of(asked, setting), value_of(got, setting))) wrong.push_back(setting);
  return wrong;
}

// Those that changed beside them. Throws for one that has nothing to do with what was asked for.
std::vector<Consequence> consequences_of(const std::string& name, const Patch& changes, const Job& before, const Job& asked,
                                         const Job& got) {
  std::vector<Consequence> out;
  const std::map<std::string, Json> then = values_of(before), now = values_of(got), wanted = values_of(asked);
  for (const auto& [setting, value] : now) {
    if (wanted.at(setting) == value) continue;
    bool follows = false;
    for (const auto& [changed, unused] : changes) follows = follows || changed == setting || may_follow(setting, changed);
    if (!follows)
      throw Error(fmt::format("[{}] writing this would change {} as well, from {} to {}", name, setting,
                              dump(then.at(setting)).substr(0, 80), dump(value).substr(0, 80)),
                  "edit the file by hand");
    out.push_back({setting, then.at(setting), value});
  }
  return out;
}

}  // namespace

Rewritten rewrite(const Document& original, const Job& before, const Patch& changes) {
  const Source source(original);
  const Job now = read_of(original, *source.format, before);
  Patch pending = changes;
  std::vector<NotWritten> refused;
  for (;;) {
    Plan plan = plan_for(source, now, pending);
    drop_idle(plan, source.file());
    Rewritten out;
    out.text = edited(source, plan);
    const Document document = parsed_again(original, out.text);
    check_values(source, plan, document);
    out.job = read_of(document, *source.format, before);
    if (plan.allocator && !is_command(original)) {
      out.environment[kAllocator] = *plan.allocator;
      apply_setting(out.job, "alloc_conf", *plan.allocator, kAllocator);
    }
    const Job asked = patched(now, plan.encoded, "plan");
    const std::vector<std::string> wrong = wrong_settings(plan.encoded, asked, out.job);
    if (!wrong.empty()) {  // the trainer makes something else of it: without these, again
      for (const std::string& setting : wrong) {
        refused.push_back({setting, pending[setting],
                           fmt::format("beside the rest of it, {} reads it as {}; {}", source.format->name,
                                       dump(value_of(out.job, setting)).substr(0, 120), manual_step(setting, asked))});
        pending.erase(setting);
      }
      continue;
    }
    out.consequences = consequences_of(original.name, plan.encoded, now, asked, out.job);
    if (refusals(out.job) > refusals(now))
      throw Error(fmt::format("[{}] with these values the trainer would stop: {}", original.name,
                              printable(out.job.findings.empty() ? "" : out.job.findings.back().what, 200)),
                  "change fewer of them");
    for (const KeyEdit& edit : plan.edits) {
      const Json* old = value_at(source.file(), edit.path);
      out.written.push_back(
          {(is_command(original) ? "--" : "") + shown(edit.path), old ? *old : Json(), edit.value.is_discarded() ? Json() : edit.value});
    }
    out.not_written = std::move(plan.not_written);
    out.not_written.insert(out.not_written.end(), refused.begin(), refused.end());
    return out;
  }
}

Outcome<Rewritten> try_rewrite(const Document& original, const Job& before, const Patch& changes) {
  return outcome_of([&] { return rewrite(original, before, changes); });
}

Outcome<std::string> trainer_flags(const Document& original, const Job& before, const Patch& changes) {
  const auto refused = [&](const std::string& what, const char* hint) {
    return Outcome<std::string>{std::nullopt, Error(fmt::format("[{}] {}", original.name, what), hint)};
  };
  const Outcome<Source> source = outcome_of([&] { return Source(original); });
  if (!source) return {std::nullopt, source.refused};
  if (source->format->rank == Rank::job) return {changes.flags(), std::nullopt};
  const Job now = read_of(original, *source->format, before);
  if (source->flags == FlagStyle::none)
    return refused(fmt::format("{} takes no flags for its settings", source->format->description), "write the file");
  Plan plan = plan_for(*source, now, changes);
  drop_idle(plan, source->file());
  if (!plan.not_written.empty())
    return refused(fmt::format("{} has no flag: {}", plan.not_written[0].setting, plan.not_written[0].instead),
                   "write the file, or say it in the program");
  if (plan.allocator)
    return refused(fmt::format("the allocator's settings are a variable, not a flag: {}={}", kAllocator, *plan.allocator),
                   "set it before the command");
  std::string out;
  for (const KeyEdit& edit : plan.edits) {
    const std::string words = flag_words({plan.names.at(edit.path), edit.value}, source->flags);
    if (words.empty()) return refused(fmt::format("no flag says {}", shown(edit.path)), "write the file");
    out += (out.empty() ? "" : " ") + words;
  }
  return {out, std::nullopt};
}

Patch given_by_flags(const Job& job) {
  Patch out;
  for (const Setting& s : job_settings())
    if (const auto it = job.origin.find(s.key); it != job.origin.end() && (it->second.starts_with("--") || it->second == "settings"))
      out.set(s.key, value_of(job, s.key));
  return out;
}

std::string format_name(const Document& document) { return Source(document).format->name; }

std::string key_of(const std::string& format, const std::string& setting) {
  const Format* f = format_named(format);
  if (!f || !f->writes) return "";
  for (const KeyEncoder& k : f->writes().keys)
    if (setting == k.setting) return k.key;
  return "";
}

}  // namespace plimsoll
