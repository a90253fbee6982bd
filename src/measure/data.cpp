#include "measure/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numbers>

#include "util/error.h"

namespace plimsoll::measure {

namespace {

namespace fs = std::filesystem;

uint64_t mixed(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

[[noreturn]] void refuse(const std::string& what, const std::string& hint) { throw Error("[data_dir] " + what, hint); }

std::vector<fs::path> files_in(const std::string& folder) {
  std::error_code error;
  std::vector<fs::path> out;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (it->is_regular_file(error)) out.push_back(it->path());
  if (error) refuse(fmt::format("cannot read {}: {}", folder, error.message()), "name a folder that is there and readable");
  std::sort(out.begin(), out.end());
  return out;
}

std::string piece_of(const std::string& path, uint64_t begin, size_t length) {
  std::ifstream in(path, std::ios::binary);
  if (!in) refuse(fmt::format("cannot read {}", path), "is it readable?");
  std::string out(length, '\0');
  in.seekg(static_cast<std::streamoff>(begin));
  in.read(out.data(), static_cast<std::streamsize>(length));
  if (!in) refuse(fmt::format("{} became shorter while it was read", path), "leave the folder as it is during a run");
  return out;
}

// As git tells it: no zero byte in the beginning.
bool is_text(const std::string& path, uint64_t bytes) {
  constexpr uint64_t kLookedAt = 8000;
  return piece_of(path, 0, static_cast<size_t>(std::min(bytes, kLookedAt))).find('\0') == std::string::npos;
}

}  // namespace

Data::Data(std::string folder, uint64_t seed) : folder_(std::move(folder)), seed_(seed) {
  if (!folder_.empty()) files_in(folder_);
}

std::mt19937_64 Data::random(int64_t sample, uint64_t purpose) const {
  return std::mt19937_64(mixed(seed_ ^ mixed(static_cast<uint64_t>(sample) ^ mixed(purpose))));
}

void Data::find_texts() const {
  std::vector<TextFile> found;
  uint64_t all = 0;
  for (const fs::path& path : files_in(folder_)) {
    std::error_code error;
    const uint64_t bytes = fs::file_size(path, error);
    if (error) refuse(fmt::format("cannot read {}: {}", path.string(), error.message()), "is it readable?");
    if (bytes == 0 || !is_text(path.string(), bytes)) continue;
    found.push_back({path.string(), all, bytes});
    all += bytes;
  }
  if (all < 2) refuse(fmt::format("{} holds no text", folder_), "put text files into it, or leave --data_dir out");
  texts_ = std::move(found);
}

// From the beginning again after the last file.
std::string Data::text_at(uint64_t begin, size_t length) const {
  std::string out;
  auto file = std::upper_bound(texts_.begin(), texts_.end(), begin, [](uint64_t at, const TextFile& f) { return at < f.begin + f.bytes; });
  for (uint64_t at = begin - file->begin; out.size() < length; at = 0) {
    out += piece_of(file->path, at, static_cast<size_t>(std::min<uint64_t>(file->bytes - at, length - out.size())));
    if (++file == texts_.end()) file = texts_.begin();
  }
  return out;
}

// Made up: steps of one width round a circle of tokens. From text: a piece that begins anywhere.
void Data::tokens(int64_t sample, int64_t length, int64_t vocabulary, int64_t* out) const {
  std::mt19937_64 numbers = random(sample, 1);
  if (folder_.empty()) {
    const int64_t circle = std::min<int64_t>(vocabulary, 64);
    const int64_t start = static_cast<int64_t>(numbers() % static_cast<uint64_t>(circle)), step = static_cast<int64_t>(1 + numbers() % 3);
    for (int64_t i = 0; i < length; ++i) out[i] = (start + i * step) % circle;
    return;
  }
  std::call_once(texts_found_, [this] { find_texts(); });
  const std::string text = text_at(numbers() % (texts_.back().begin + texts_.back().bytes), static_cast<size_t>(length));
  for (int64_t i = 0; i < length; ++i) out[i] = static_cast<unsigned char>(text[static_cast<size_t>(i)]) % vocabulary;
}

void Data::find_pictures() const {
  std::vector<PictureSource> found;
  for (const fs::path& path : files_in(folder_)) add_pictures(path, found);
  if (found.empty())
    refuse(fmt::format("{} holds no picture", folder_), fmt::format("put {} files into it, or leave --data_dir out", picture_endings()));
  pictures_ = std::move(found);
}

// Made up: waves that move from frame to frame. From files: the nearest pixels, one picture a frame.
void Data::images(int64_t sample, int64_t frames, int64_t channels, int64_t height, int64_t width, float* out) const {
  std::mt19937_64 numbers = random(sample, 2);
  if (!folder_.empty()) std::call_once(pictures_found_, [this] { find_pictures(); });
  const double tilt = static_cast<double>(numbers() % 7) - 3, turns = 1 + static_cast<double>(numbers() % 3);
  const size_t first = pictures_.empty() ? 0 : numbers() % pictures_.size();
  for (int64_t f = 0; f < frames; ++f) {
    const Picture picture = pictures_.empty() ? Picture{} : read_picture(pictures_[(first + static_cast<size_t>(f)) % pictures_.size()]);
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t y = 0; y < height; ++y)
        for (int64_t x = 0; x < width; ++x, ++out) {
          if (pictures_.empty()) {
            const double across = static_cast<double>(x) / static_cast<double>(width),
                         down = static_cast<double>(y) / static_cast<double>(height);
            *out = static_cast<float>(std::sin(
                2 * std::numbers::pi * (turns * across + tilt * down / 3 + 0.1 * static_cast<double>(f) + 0.25 * static_cast<double>(c))));
            continue;
          }
          const int64_t from_y = y * picture.height / height, from_x = x * picture.width / width, from_c = c % picture.channels;
          *out = picture.values[static_cast<size_t>((from_c * picture.height + from_y) * picture.width + from_x)];
        }
  }
}

}  // namespace plimsoll::measure
