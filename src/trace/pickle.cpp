#include "trace/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "trace/pickle_opcodes.h"
#include "util/error.h"

namespace plimsoll {

namespace {

constexpr uint8_t kDeepest = 100;  // a snapshot has eight levels
// What waits on the stack: a writer without batches puts a whole list there, its entries taken by the consumer. Some hundred bytes each, so
// that a file of nothing but openings cannot fill the memory.
constexpr size_t kMostWaiting = size_t{1} << 22, kMostMarks = 1000;
constexpr size_t kReport = size_t{1} << 24;  // bytes between two calls of `progress`
constexpr size_t kMostValues = INT32_MAX;    // ids are 32 bits, and half of them numbers of a consumer
constexpr size_t kSmallIntegers = 256;       // shared, as Python shares them
constexpr Pickle::Id kIdNone = 0, kIdFalse = 1, kIdTrue = 2, kFirstInteger = 3;

}  // namespace

std::string_view kind_name(Pickle::Kind kind) {
  static constexpr std::string_view kNames[] = {"None",   "a bool",  "a whole number", "a float", "a text", "a list that was read",
                                                "a list", "a tuple", "a dict"};
  return kNames[static_cast<size_t>(kind)];
}

// The slot that has `text`, or the empty one where it belongs. The table is never full.
size_t Pickle::slot_of(std::string_view text) const {
  const size_t mask = texts_.size() - 1;
  size_t slot = std::hash<std::string_view>{}(text)&mask;
  while (texts_[slot] != kNothing && this->text(texts_[slot]) != text) slot = (slot + 1) & mask;
  return slot;
}

Pickle::Id Pickle::find_text(std::string_view text) const { return texts_[slot_of(text)]; }

// The stack machine of a pickle, with bounds: every read against what is left, every pop against the last mark.
class PickleReader {
 public:
  PickleReader(Pickle& out, std::string_view bytes, const std::string& name, const ReadProgress& progress, PickleConsumer* consumer)
      : name_(name), progress_(progress), consumer_(consumer), out_(out) {
    out_.bytes_ = bytes;
    out_.words_.assign(2, 0);  // index 0 means no piece
    out_.texts_.assign(1024, Pickle::kNothing);
    add(Kind::none, 0);
    add(Kind::boolean, 0);
    add(Kind::boolean, 1);
    for (size_t i = 0; i < kSmallIntegers; ++i) add(Kind::integer, static_cast<int64_t>(i));
  }

  void read() {
    if (!looks_like_pickle(out_.bytes_)) refuse("no pickle of protocol 2 to 5 begins here");
    at_ = 2;
    size_t next_report = kReport;
    while (step())
      if (at_ >= next_report && progress_) {
        progress_(at_, out_.bytes_.size());
        next_report = at_ + kReport;
      }
    if (progress_) progress_(out_.bytes_.size(), out_.bytes_.size());
  }

 private:
  using Id = Pickle::Id;
  using Kind = Pickle::Kind;
  using Node = Pickle::Node;

  [[noreturn]] void refuse(const std::string& what,
                           const std::string& hint = "the file is damaged, cut short or not a pickle; dump the snapshot again") const {
    throw Error(fmt::format("[pickle] {}, byte {}: {}", name_, opcode_at_, what), hint);
  }

  [[noreturn]] void refuse_opcode(uint8_t opcode) const {
    const std::string_view name = name_of_refused(opcode);
    if (name.empty()) refuse(fmt::format("opcode 0x{:02x} is not one of a memory snapshot", opcode));
    refuse(fmt::format("opcode {} asks for a Python object; it is refused and no code of the file is run", name),
           "torch.cuda.memory._dump_snapshot writes plain values only; this file holds something else");
  }

  // --- reading

  std::string_view take(uint64_t n) {
    const size_t left = out_.bytes_.size() - at_;
    if (n > left) refuse(fmt::format("{} bytes are needed and {} are left", n, left));
    const std::string_view piece = out_.bytes_.substr(at_, n);
    at_ += n;
    return piece;
  }

  template <class T>
  T little_endian() {
    static_assert(std::endian::native == std::endian::little);
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }

  // Eight bytes, or nine of which the last is 0: an unsigned number, which keeps its bits (PyTorch writes a frame without a
  // line as 2^64 - 1).
  int64_t long1() {
    const uint8_t n = little_endian<uint8_t>();
    const std::string_view digits = take(n);
    if (n > 9 || (n == 9 && digits[8] != 0)) refuse(fmt::format("a whole number of {} bytes, more than 64 bits", n));
    uint64_t value = 0;
    std::memcpy(&value, digits.data(), std::min<size_t>(n, 8));
    if (n == 0 || n >= 8) return static_cast<int64_t>(value);
    const int unused = 64 - 8 * n;
    return static_cast<int64_t>(value << unused) >> unused;
  }

  double binfloat() {
    const uint64_t bits = __builtin_bswap64(little_endian<uint64_t>());
    double value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }

  // --- values

  Id add(Kind kind, int64_t integer, uint32_t length = 0) {
    ++out_.values_;
    Id id = 0;
    if (dropped_.empty()) {
      if (out_.nodes_.size() >= kMostValues) refuse("more than 2^31 values");
      id = static_cast<Id>(out_.nodes_.size());
      out_.nodes_.emplace_back();
    } else {
      id = dropped_.back();
      dropped_.pop_back();
      out_.nodes_[id] = {};
    }
    Node& node = out_.nodes_[id];
    node.kind = kind;
    node.length = length;
    node.integer = integer;
    return id;
  }

  Id container(Kind kind) {
    const Id id = add(kind, 0);
    out_.nodes_[id].pieces = {0, 0};
    return id;
  }

  Id integer(int64_t value) {
    if (value >= 0 && value < static_cast<int64_t>(kSmallIntegers)) return kFirstInteger + static_cast<Id>(value);
    return add(Kind::integer, value);
  }

  Id real(double value) {
    const Id id = add(Kind::real, 0);
    out_.nodes_[id].real = value;
    return id;
  }

  Id text(uint64_t length) {
    if (length > UINT32_MAX) refuse(fmt::format("a text of {} bytes", length));
    const size_t offset = at_;
    const std::string_view content = take(length);
    const size_t slot = out_.slot_of(content);
    if (out_.texts_[slot] != Pickle::kNothing) return out_.texts_[slot];
    const Id id = add(Kind::text, 0, static_cast<uint32_t>(length));
    out_.nodes_[id].offset = offset;
    out_.texts_[slot] = id;
    if (++texts_ * 2 > out_.texts_.size()) grow_texts();
    return id;
  }

  void grow_texts() {
    std::vector<Id> old(out_.texts_.size() * 2, Pickle::kNothing);
    std::swap(old, out_.texts_);
    for (const Id id : old)
      if (id != Pickle::kNothing) out_.texts_[out_.slot_of(out_.text(id))] = id;
  }

  // Adds the ids from `first` to the top of the stack to a container and takes them off the stack.
  void extend(Id parent, size_t first) {
    const size_t count = stack_.size() - first;
    if (count == 0) return;
    if (out_.words_.size() + count + 2 > UINT32_MAX) refuse("more than 2^32 items");
    for (size_t i = first; i < stack_.size(); ++i) adopt(parent, stack_[i]);
    Node& node = out_.nodes_[parent];
    if (node.closed) refuse("a value that is already part of another one grows");
    if (count > UINT32_MAX - node.length) refuse("more than 2^32 items");
    const auto piece = static_cast<uint32_t>(out_.words_.size());
    out_.words_.push_back(0);
    out_.words_.push_back(static_cast<uint32_t>(count));
    out_.words_.insert(out_.words_.end(), stack_.begin() + static_cast<int64_t>(first), stack_.end());
    (node.pieces.first == 0 ? node.pieces.first : out_.words_[node.pieces.last]) = piece;
    node.pieces.last = piece;
    node.length += static_cast<uint32_t>(node.kind == Kind::dict ? count / 2 : count);
    stack_.resize(first);
  }

  void adopt(Id parent, Id child) {
    if (out_.kind(child) < Kind::list) return;
    Node& node = out_.nodes_[child];
    node.closed = true;
    if (node.depth >= kDeepest) refuse(fmt::format("values nested more than {} deep", kDeepest));
    out_.nodes_[parent].depth = std::max<uint8_t>(out_.nodes_[parent].depth, node.depth + 1);
  }

  void set_items(Id dict, size_t first) {
    if ((stack_.size() - first) % 2 != 0) refuse("a dict key without a value");
    for (size_t i = first; i < stack_.size(); i += 2)
      if (out_.kind(stack_[i]) != Kind::text) refuse(fmt::format("a dict key is {}, expected a text", kind_name(out_.kind(stack_[i]))));
    extend(dict, first);
  }

  // --- what a consumer takes

  Id known(std::string_view text, Id& id) const { return id == Pickle::kNothing ? id = out_.find_text(text) : id; }

  // Whether the value at `at` is the list under the consumer's key: it stands right after it in the outermost dict.
  bool is_consumed_list(size_t at) {
    return at >= 2 && out_.kind(stack_[at]) == Kind::list && stack_[at - 1] == known(consumer_->key(), key_) &&
           out_.kind(stack_[0]) == Kind::dict;
  }

  // Of which of those lists the dict on top of the stack will be an item. It stands right after that list: others of it were taken.
  std::optional<size_t> consumed_list() {
    if (stack_.size() < 5) return {};
    const size_t list = stack_.size() - 2;
    if (out_.kind(stack_[list]) != Kind::list) return {};
    for (size_t i = marks_.size(); i-- > 0;) {  // its siblings stand between the outer list's mark and it
      if (marks_[i] > list || marks_[i] < 3) continue;
      if (is_consumed_list(marks_[i] - 1)) return out_.size(stack_[marks_[i] - 1]) + list - marks_[i];
      break;
    }
    if (is_consumed_list(list - 1)) return out_.size(stack_[list - 1]);
    return {};
  }

  void offer_dict() {
    const std::optional<size_t> list = consumed_list();
    if (!list) return;
    const Id dict = stack_.back();
    Id shared = Pickle::kNothing;
    for (auto it = out_.items(dict).begin(); it != std::default_sentinel; ++it) {
      const Id key = *it, value = *++it;
      if (key == known(consumer_->interned_key(), interned_key_) && out_.kind(value) == Kind::list) shared = value;
    }
    if (shared != Pickle::kNothing) intern(shared, dict);
    consumer_->take(*list, dict);
    drop(dict);
    if (!marks_.empty() && marks_.back() + 1 == stack_.size()) {
      stack_.pop_back();  // a batch gets shorter
    } else {
      stack_.back() = kIdNone;  // APPEND follows
    }
  }

  // The words of a value that was the last to be completed.
  void drop_words(const Node& node) {
    if (node.pieces.first == 0 || node.pieces.first != node.pieces.last) return;
    const size_t count = node.kind == Kind::dict ? 2 * size_t{node.length} : node.length;
    if (node.pieces.first + 2 + count == out_.words_.size()) out_.words_.resize(node.pieces.first);
  }

  // A list that was made in the dict has its words right before the dict's, which was completed after it, and nobody but the memo knows it:
  // it is replaced by its number. Another one keeps its id.
  void intern(Id list, Id dict) {
    const int64_t number = consumer_->intern(list);
    if (number < 0 || number >= Pickle::kNothing - Pickle::kFirstInterned) refuse("more than 2^31 different lists");
    const Node node = out_.nodes_[list], around = out_.nodes_[dict];
    const uint32_t words = around.pieces.first, to = node.pieces.first;
    const bool alone = to != 0 && to == node.pieces.last && to + 2 + node.length == words && words == around.pieces.last;
    const std::optional<size_t> place = alone ? place_in_memo(list) : std::nullopt;
    if (!alone || !place) {
      out_.nodes_[list] = {};
      out_.nodes_[list].kind = Kind::interned;
      out_.nodes_[list].integer = number;
      return;
    }
    const Id id = Pickle::kFirstInterned + static_cast<Id>(number);
    std::replace(out_.words_.begin() + words + 2, out_.words_.end(), list, id);
    out_.words_.erase(out_.words_.begin() + to, out_.words_.begin() + words);
    out_.nodes_[dict].pieces = {to, to};
    memo_[*place] = id;
    dropped_.push_back(list);
  }

  // Where a value is in the memo that was written not long ago.
  std::optional<size_t> place_in_memo(Id value) const {
    constexpr size_t kSearched = 4096;
    const size_t least = memo_.size() > kSearched ? memo_.size() - kSearched : 0;
    for (size_t at = memo_.size(); at-- > least;)
      if (memo_[at] == value) return at;
    return {};
  }

  // The dict and the numbers that were made in it are forgotten, and so is its place in the memo.
  void drop(Id dict) {
    const std::optional<size_t> place = place_in_memo(dict);
    if (place) memo_[*place] = Pickle::kNothing;
    for (auto it = out_.items(dict).begin(); it != std::default_sentinel; ++it) {
      ++it;
      if (const Id value = *it; out_.kind(value) == Kind::integer && value >= kFirstInteger + kSmallIntegers) dropped_.push_back(value);
    }
    drop_words(out_.nodes_[dict]);
    out_.nodes_[dict] = {};
    if (place) dropped_.push_back(dict);
  }

  // --- the stack

  size_t fence() const { return marks_.empty() ? 0 : marks_.back(); }

  void need(size_t n) const {
    if (stack_.size() - fence() < n) refuse("an opcode finds too little on the stack");
  }

  size_t pop_mark() {
    if (marks_.empty()) refuse("an opcode finds no mark on the stack");
    const size_t mark = marks_.back();
    marks_.pop_back();
    return mark;
  }

  // Everything above the mark goes into what is right below it.
  void extend_below_mark(Kind kind) {
    const size_t mark = pop_mark();
    if (mark <= fence()) refuse("an opcode finds too little on the stack");
    const Id parent = stack_[mark - 1];
    if (out_.kind(parent) != kind)
      refuse(fmt::format("an opcode finds {} on the stack, expected {}", kind_name(out_.kind(parent)), kind_name(kind)));
    kind == Kind::dict ? set_items(parent, mark) : extend(parent, mark);
    if (consumer_ && kind == Kind::dict) offer_dict();
  }

  void collect(Kind kind, size_t first) {
    const Id id = container(kind);
    kind == Kind::dict ? set_items(id, first) : extend(id, first);
    stack_.push_back(id);
  }

  void collect_last(size_t n) {
    need(n);
    collect(Kind::tuple, stack_.size() - n);
  }

  void set_item() {
    need(3);
    const size_t first = stack_.size() - 2;
    if (out_.kind(stack_[first - 1]) != Kind::dict) refuse("an opcode expects a dict on the stack");
    set_items(stack_[first - 1], first);
  }

  void append() {
    need(2);
    const size_t first = stack_.size() - 1;
    if (out_.kind(stack_[first - 1]) != Kind::list) refuse("an opcode expects a list on the stack");
    extend(stack_[first - 1], first);
  }

  void pop() {
    if (stack_.size() > fence()) return stack_.pop_back();
    pop_mark();
  }

  // --- the memo

  void get(uint32_t index) {
    if (index >= memo_.size() || memo_[index] == Pickle::kNothing) refuse(fmt::format("memo {} was never written", index));
    stack_.push_back(memo_[index]);
  }

  // Writers count up, so no index is larger than the number of values written before it.
  void put(uint64_t index) {
    need(1);
    if (index > puts_ + kSmallIntegers) refuse(fmt::format("memo {} after {} entries", index, puts_));
    ++puts_;
    if (index >= memo_.size()) memo_.resize(index + 1, Pickle::kNothing);
    memo_[index] = stack_.back();
  }

  void frame() {
    const uint64_t length = little_endian<uint64_t>();
    if (length > out_.bytes_.size() - at_) refuse(fmt::format("a frame of {} bytes where {} are left", length, out_.bytes_.size() - at_));
  }

  void stop() {
    need(1);
    out_.root_ = stack_.back();
    at_ = out_.bytes_.size();
  }

  // One opcode; false after STOP.
  bool step() {
    opcode_at_ = at_;
    if (stack_.size() > kMostWaiting || marks_.size() > kMostMarks) refuse("more values are begun than a snapshot has open at once");
    const uint8_t opcode = little_endian<uint8_t>();
    switch (opcode) {
      case kOpStop: return stop(), false;
      case kOpFrame: frame(); break;
      case kOpMark: marks_.push_back(stack_.size()); break;
      case kOpPop: pop(); break;

      case kOpMemoize: put(memo_.size()); break;
      case kOpBinPut: put(little_endian<uint8_t>()); break;
      case kOpLongBinPut: put(little_endian<uint32_t>()); break;
      case kOpBinGet: get(little_endian<uint8_t>()); break;
      case kOpLongBinGet: get(little_endian<uint32_t>()); break;

      case kOpNone: stack_.push_back(kIdNone); break;
      case kOpNewFalse: stack_.push_back(kIdFalse); break;
      case kOpNewTrue: stack_.push_back(kIdTrue); break;
      case kOpBinInt: stack_.push_back(integer(little_endian<int32_t>())); break;
      case kOpBinInt1: stack_.push_back(integer(little_endian<uint8_t>())); break;
      case kOpBinInt2: stack_.push_back(integer(little_endian<uint16_t>())); break;
      case kOpLong1: stack_.push_back(integer(long1())); break;
      case kOpBinFloat: stack_.push_back(real(binfloat())); break;
      case kOpShortBinUnicode: stack_.push_back(text(little_endian<uint8_t>())); break;
      case kOpBinUnicode: stack_.push_back(text(little_endian<uint32_t>())); break;
      case kOpBinUnicode8: stack_.push_back(text(little_endian<uint64_t>())); break;

      case kOpEmptyList: stack_.push_back(container(Kind::list)); break;
      case kOpEmptyDict: stack_.push_back(container(Kind::dict)); break;
      case kOpEmptyTuple: stack_.push_back(container(Kind::tuple)); break;
      case kOpList: collect(Kind::list, pop_mark()); break;
      case kOpDict: collect(Kind::dict, pop_mark()); break;
      case kOpTuple: collect(Kind::tuple, pop_mark()); break;
      case kOpTuple1: collect_last(1); break;
      case kOpTuple2: collect_last(2); break;
      case kOpTuple3: collect_last(3); break;
      case kOpAppend: append(); break;
      case kOpAppends: extend_below_mark(Kind::list); break;
      case kOpSetItem: set_item(); break;
      case kOpSetItems: extend_below_mark(Kind::dict); break;
      default: refuse_opcode(opcode);
    }
    return true;
  }

  const std::string& name_;
  const ReadProgress& progress_;
  PickleConsumer* consumer_;
  Pickle& out_;
  size_t at_ = 0, opcode_at_ = 0;
  size_t texts_ = 0;
  uint64_t puts_ = 0;
  std::vector<Id> stack_;
  std::vector<size_t> marks_;
  std::vector<Id> memo_;
  std::vector<Id> dropped_;                                      // ids to use again
  Id key_ = Pickle::kNothing, interned_key_ = Pickle::kNothing;  // of the consumer, once the file has them
};

bool looks_like_pickle(std::string_view bytes) {
  return bytes.size() >= 2 && static_cast<uint8_t>(bytes[0]) == kOpProto && bytes[1] >= 2 && bytes[1] <= 5;
}

Pickle read_pickle(std::string_view bytes, const std::string& name, const ReadProgress& progress) {
  Pickle out;
  read_pickle(out, bytes, name, progress, nullptr);
  return out;
}

void read_pickle(Pickle& out, std::string_view bytes, const std::string& name, const ReadProgress& progress, PickleConsumer* consumer) {
  PickleReader(out, bytes, name, progress, consumer).read();
}

}  // namespace plimsoll
