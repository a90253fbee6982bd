// A restricted reader of Python pickles, protocols 2 to 5: plain values only (None, bool, int, float, str, list, tuple and
// dict with str keys). Opcodes that could name or call code are refused, so no code of the file is ever run. Values that the
// file shares stay shared, so a file costs memory by its length and never by what it would expand to; and what is needed but once can be
// taken while it is read (PickleConsumer), so that a file of any length costs what is kept of it.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plimsoll {

// A read pickle. Texts point into the bytes it was read from, which must outlive it. Equal texts have equal ids.
class Pickle {
 public:
  using Id = uint32_t;
  static constexpr Id kNothing = UINT32_MAX;  // an id that no value has
  enum class Kind : uint8_t { none, boolean, integer, real, text, interned, list, tuple, dict };

  // The items of a list or tuple; of a dict, keys and values in turn. They lie in pieces, one for each time it grew.
  class Iterator {
   public:
    using value_type = Id;
    using difference_type = std::ptrdiff_t;
    Iterator() = default;
    Id operator*() const { return (*words_)[at_]; }
    Iterator& operator++() {
      ++at_;
      if (--left_ == 0) enter(next_);
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& a, std::default_sentinel_t) { return a.left_ == 0; }

   private:
    friend class Pickle;
    Iterator(const std::vector<uint32_t>& words, uint32_t piece) : words_(&words) { enter(piece); }
    void enter(uint32_t piece) {
      if (piece == 0) return;
      next_ = (*words_)[piece];
      left_ = (*words_)[piece + 1];
      at_ = piece + 2;
    }
    const std::vector<uint32_t>* words_ = nullptr;
    size_t at_ = 0;
    uint32_t left_ = 0, next_ = 0;
  };
  struct Items {
    Iterator first;
    Iterator begin() const { return first; }
    std::default_sentinel_t end() const { return {}; }
  };

  Id root() const { return root_; }
  Kind kind(Id id) const { return id >= kFirstInterned ? Kind::interned : nodes_[id].kind; }
  bool boolean(Id id) const { return nodes_[id].integer != 0; }
  int64_t integer(Id id) const { return nodes_[id].integer; }
  int64_t interned(Id id) const { return id >= kFirstInterned ? id - kFirstInterned : nodes_[id].integer; }  // a PickleConsumer's number
  double real(Id id) const { return nodes_[id].real; }
  std::string_view text(Id id) const { return bytes_.substr(nodes_[id].offset, nodes_[id].length); }
  size_t size(Id id) const { return nodes_[id].length; }  // items of a list or tuple, pairs of a dict
  Items items(Id id) const { return {Iterator(words_, nodes_[id].pieces.first)}; }
  Id find_text(std::string_view text) const;                     // kNothing when the file does not have it
  size_t kept() const { return nodes_.size() + words_.size(); }  // values and words that take memory now
  uint64_t values() const { return values_; }                    // that were read, taken ones included

 private:
  friend class PickleReader;
  static constexpr Id kFirstInterned = Id{1} << 31;  // ids that are numbers of a consumer, and no values of their own
  struct Pieces {
    uint32_t first, last;  // where a piece begins in words_; 0: none
  };
  struct Node {
    Kind kind = Kind::none;
    uint8_t depth = 0;    // containers below it
    bool closed = false;  // part of another value: may not grow any more, so no value can contain itself
    uint32_t length = 0;
    union {
      int64_t integer = 0;
      double real;
      uint64_t offset;
      Pieces pieces;
    };
  };

  size_t slot_of(std::string_view text) const;

  std::string_view bytes_;
  std::vector<Node> nodes_;
  std::vector<uint32_t> words_;  // pieces of containers: where the next one begins, how many ids, the ids
  std::vector<Id> texts_;        // open-addressed table of the distinct texts
  Id root_ = 0;
  uint64_t values_ = 0;
};

std::string_view kind_name(Pickle::Kind kind);  // "a dict", "a whole number"

using ReadProgress = std::function<void(size_t done, size_t total)>;

// Takes the dicts in the lists that the outermost dict has under one key, {key: [[dict, dict, ...], ...]}: each as soon as it is complete,
// and then it is dropped. A list in them that the file shares again and again becomes a number.
class PickleConsumer {
 public:
  virtual ~PickleConsumer() = default;
  virtual std::string_view key() const = 0;
  virtual std::string_view interned_key() const = 0;  // in the dicts
  virtual int64_t intern(Pickle::Id list) = 0;
  virtual void take(size_t list, Pickle::Id dict) = 0;
};

// Whether the bytes begin as a pickle of these protocols does.
bool looks_like_pickle(std::string_view bytes);

// Throws Error naming `name` and the byte for anything else than the above. `progress` is called now and then, and at the end.
Pickle read_pickle(std::string_view bytes, const std::string& name, const ReadProgress& progress = {});
// The same into `out`, which the consumer may look at meanwhile.
void read_pickle(Pickle& out, std::string_view bytes, const std::string& name, const ReadProgress& progress, PickleConsumer* consumer);

}  // namespace plimsoll
