#include "hardware/visible.h"

#include <fmt/format.h>

#include <algorithm>

namespace plimsoll {

namespace {

using Devices = std::vector<DetectedDevice*>;

std::vector<std::string> entries(const std::string& text) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    std::string entry = text.substr(begin, end - begin);
    entry.erase(0, entry.find_first_not_of(" \t"));
    entry.erase(entry.find_last_not_of(" \t") + 1);
    out.push_back(entry);
    begin = end + 1;
  }
  return out;
}

// Like strtoul: the digits in front ("1gpu" is 1); -1 when there are none.
int64_t leading_number(const std::string& text) {
  const size_t digits = std::min<size_t>(text.find_first_not_of("0123456789"), text.size());
  return whole_number(text.substr(0, digits)).value_or(-1);
}

// The one device whose UUID begins so; null when none or several do.
DetectedDevice* by_uuid(const Devices& devices, const std::string& prefix) {
  DetectedDevice* found = nullptr;
  for (DetectedDevice* d : devices) {
    if (!d->uuid.starts_with(prefix)) continue;
    if (found) return nullptr;
    found = d;
  }
  return found;
}

struct Selection {
  Devices chosen;
  std::string stopped_at;  // the entry that ended the list
  bool repeated = false;
};

// "GPU-", "MIG-" or nothing for a number: a list holds one sort, and the first entry of another sort ends it.
std::string sort_of(const std::string& entry) { return entry.starts_with("GPU-") || entry.starts_with("MIG-") ? entry.substr(0, 4) : ""; }

// The rules of CUDA, as PyTorch's torch.cuda._parse_visible_devices restates them: the list ends at the first entry that is no
// device, and an entry given twice leaves no device at all. `numbered` are the devices that numbers count, `all` those that UUIDs name.
Selection select(const std::string& text, const Devices& numbered, const Devices& all) {
  Selection out;
  const std::vector<std::string> list = entries(text);
  for (const std::string& entry : list) {
    DetectedDevice* d = nullptr;
    if (sort_of(entry) != sort_of(list[0])) {
      d = nullptr;
    } else if (!sort_of(entry).empty()) {
      d = by_uuid(all, entry);
    } else if (const int64_t i = leading_number(entry); i >= 0 && i < static_cast<int64_t>(numbered.size())) {
      d = numbered[static_cast<size_t>(i)];
    }
    if (!d) {
      out.stopped_at = entry;
      break;
    }
    if (std::find(out.chosen.begin(), out.chosen.end(), d) != out.chosen.end()) return {{}, entry, true};
    out.chosen.push_back(d);
  }
  return out;
}

void report(Machine& m, const std::string& name, const std::string& value, const Selection& selection) {
  const std::string said = name + "='" + printable(value) + "'";
  m.conclusions.push_back(
      fmt::format("{} leaves {} device{} visible", said, selection.chosen.size(), selection.chosen.size() == 1 ? "" : "s"));
  // Empty and -1 are the usual ways to say "none".
  if (selection.repeated) {
    m.blockers.push_back(fmt::format("{} names '{}' twice, which hides every device", said, printable(selection.stopped_at)));
  } else if (!selection.stopped_at.empty() && selection.stopped_at != "-1") {
    m.blockers.push_back(
        fmt::format("{}: '{}' is no device here, so it and everything after it is hidden", said, printable(selection.stopped_at)));
  }
}

void keep_only(const Devices& devices, const Devices& chosen) {
  for (DetectedDevice* d : devices) d->visible = std::find(chosen.begin(), chosen.end(), d) != chosen.end() ? Visible::yes : Visible::no;
}

bool alike(const Devices& devices) {
  return std::all_of(devices.begin(), devices.end(),
                     [&](const DetectedDevice* d) { return d->name == devices[0]->name && d->total == devices[0]->total; });
}

// CUDA numbers devices from the fastest on unless CUDA_DEVICE_ORDER=PCI_BUS_ID; NVML numbers them by PCI address. Where the devices
// are alike or all are chosen the two orders choose the same.
bool order_matters(const Surroundings& s, const Devices& whole, const std::string& value, const Selection& selection) {
  if (s.variable("CUDA_DEVICE_ORDER").value_or("FASTEST_FIRST") == "PCI_BUS_ID") return false;
  if (value.starts_with("GPU-") || value.starts_with("MIG-") || selection.chosen.empty()) return false;
  return !alike(whole) && selection.chosen.size() < whole.size();
}

void apply_cuda(const Surroundings& s, Machine& m) {
  Devices all, whole, numbered;
  for (DetectedDevice& d : m.devices)
    if (d.vendor == "NVIDIA") all.push_back(&d);
  for (DetectedDevice* d : all)
    if (d->parent_uuid.empty()) whole.push_back(d);
  // A number names a whole device; of a split one, its first slice (NVIDIA MIG user guide: a process sees one compute instance).
  for (DetectedDevice* d : whole) {
    DetectedDevice* target = d;
    for (DetectedDevice* slice : all)
      if (d->split && !slice->parent_uuid.empty() && slice->parent_uuid == d->uuid && target == d) target = slice;
    numbered.push_back(target);
  }
  if (all.empty()) return;
  Devices usable = numbered;
  std::erase_if(usable, [](const DetectedDevice* d) { return d->split; });
  const auto value = s.variable("CUDA_VISIBLE_DEVICES");
  if (!value) {
    keep_only(all, usable);
  } else {
    const Selection selection = select(*value, numbered, all);
    keep_only(all, selection.chosen);
    report(m, "CUDA_VISIBLE_DEVICES", *value, selection);
    if (order_matters(s, whole, *value, selection)) {
      for (DetectedDevice* d : numbered) d->visible = Visible::unknown;
      m.blockers.push_back(
          "CUDA_VISIBLE_DEVICES numbers unlike devices, and CUDA counts from the fastest: set CUDA_DEVICE_ORDER=PCI_BUS_ID or name UUIDs");
    }
  }
  for (DetectedDevice* d : whole)
    if (d->split) {
      d->visible = Visible::no;
      m.conclusions.push_back(fmt::format("gpu {} is split by MIG: a process sees one slice, and the slice's size counts", d->index));
    }
}

// ROCm narrows twice: ROCR_VISIBLE_DEVICES first, then HIP_VISIBLE_DEVICES (or CUDA_VISIBLE_DEVICES) counts within what is left.
void apply_hip(const Surroundings& s, Machine& m) {
  Devices all;
  for (DetectedDevice& d : m.devices)
    if (d.vendor == "AMD") all.push_back(&d);
  if (all.empty()) return;
  Devices left = all;
  for (const char* name : {"ROCR_VISIBLE_DEVICES", s.variable("HIP_VISIBLE_DEVICES") ? "HIP_VISIBLE_DEVICES" : "CUDA_VISIBLE_DEVICES"}) {
    const auto value = s.variable(name);
    if (!value) continue;
    const Selection selection = select(*value, left, left);
    report(m, name, *value, selection);
    left = selection.chosen;
  }
  keep_only(all, left);
}

// Level Zero: "0,1" or "0.0,1.1" with a tile after the point; an unset or empty mask shows all.
void apply_ze(const Surroundings& s, Machine& m) {
  Devices all;
  for (DetectedDevice& d : m.devices)
    if (d.vendor == "Intel") all.push_back(&d);
  const std::string mask = s.variable("ZE_AFFINITY_MASK").value_or("");
  if (all.empty() || mask.empty()) return;
  Devices chosen;
  for (const std::string& entry : entries(mask))
    if (const int64_t i = leading_number(entry); i >= 0 && i < static_cast<int64_t>(all.size()))
      chosen.push_back(all[static_cast<size_t>(i)]);
  keep_only(all, chosen);
  m.conclusions.push_back("ZE_AFFINITY_MASK='" + printable(mask) + "' chooses Intel devices");
}

}  // namespace

const char* to_string(Visible visible) {
  switch (visible) {
    case Visible::yes: return "yes";
    case Visible::no: return "no";
    case Visible::unknown: return "unknown";
  }
  return "unknown";
}

void apply_visibility(const Surroundings& s, Machine& m) {
  apply_cuda(s, m);
  apply_hip(s, m);
  apply_ze(s, m);
}

}  // namespace plimsoll
