#include "measure/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numbers>

#include "util/error.h"

namespace plimsoll::measure {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostPixels = int64_t{1} << 28;

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

std::string contents(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::string out((std::istreambuf_iterator<char>(in)), {});
  if (!in) refuse(fmt::format("cannot read {}", path.string()), "is it readable?");
  return out;
}

}  // namespace

Data::Data(std::string folder, uint64_t seed) : folder_(std::move(folder)), seed_(seed) {
  if (!folder_.empty()) files_in(folder_);
}

std::mt19937_64 Data::random(int64_t sample, uint64_t purpose) const {
  return std::mt19937_64(mixed(seed_ ^ mixed(static_cast<uint64_t>(sample) ^ mixed(purpose))));
}

void Data::read_text() const {
  for (const fs::path& path : files_in(folder_)) text_ += contents(path);
  if (text_.size() < 2) refuse(fmt::format("{} holds no text", folder_), "put text files into it, or leave --data_dir out");
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
  if (text_.empty()) read_text();
  const size_t begin = numbers() % text_.size();
  for (int64_t i = 0; i < length; ++i)
    out[i] = static_cast<unsigned char>(text_[(begin + static_cast<size_t>(i)) % text_.size()]) % vocabulary;
}

Data::Image Data::read_netpbm(const std::string& path) {
  const std::string bytes = contents(path);
  size_t at = 2;
  const auto number = [&] {
    while (at < bytes.size() && (std::isspace(static_cast<unsigned char>(bytes[at])) || bytes[at] == '#')) {
      if (bytes[at] == '#')
        at = std::min(bytes.find('\n', at), bytes.size());
      else
        ++at;
    }
    int64_t n = 0;
    for (; at < bytes.size() && std::isdigit(static_cast<unsigned char>(bytes[at])) && n < kMostPixels; ++at)
      n = n * 10 + (bytes[at] - '0');
    return n;
  };
  const bool colour = bytes.starts_with("P6");
  if (!colour && !bytes.starts_with("P5")) refuse(path + " is no binary PPM or PGM", "begin it with P6 or P5");
  Image image{colour ? 3 : 1, 0, 0, {}};
  image.width = number();
  image.height = number();
  const int64_t most = number();
  ++at;
  const int64_t pixels = image.width * image.height;
  if (image.width <= 0 || image.height <= 0 || pixels > kMostPixels || most != 255 ||
      static_cast<int64_t>(bytes.size() - std::min(at, bytes.size())) < pixels * image.channels)
    refuse(fmt::format("{}: {} x {} pixels up to {} in {} bytes", path, image.width, image.height, most, bytes.size()),
           "give a whole image with 255 levels");
  image.values.resize(static_cast<size_t>(pixels * image.channels));
  for (int64_t p = 0; p < pixels; ++p)
    for (int64_t c = 0; c < image.channels; ++c)
      image.values[static_cast<size_t>(c * pixels + p)] =
          static_cast<float>(static_cast<unsigned char>(bytes[at + static_cast<size_t>(p * image.channels + c)])) / 127.5f - 1;
  return image;
}

// NumPy's format 1.0: float32 or uint8 in C order, (H, W), (C, H, W) or (N, C, H, W).
void Data::read_npy(const std::string& path, std::vector<Image>& out) {
  const std::string bytes = contents(path);
  const auto wrong = [&](const std::string& why) { refuse(path + ": " + why, "save float32 or uint8 in C order: numpy.save"); };
  if (!bytes.starts_with("\x93NUMPY\x01") || bytes.size() < 10) wrong("not a .npy file of version 1");
  const size_t header = static_cast<unsigned char>(bytes[8]) + 256u * static_cast<unsigned char>(bytes[9]), begin = 10 + header;
  if (begin > bytes.size()) wrong("ends in its header");
  const std::string text = bytes.substr(10, header);
  const bool wide = text.find("'<f4'") != std::string::npos;
  if (!wide && text.find("'|u1'") == std::string::npos) wrong("neither float32 nor uint8");
  if (text.find("'fortran_order': False") == std::string::npos) wrong("in Fortran order");
  std::vector<int64_t> shape;
  const size_t open = text.find("'shape': (");
  if (open == std::string::npos) wrong("without a shape");
  for (size_t i = open + 10; i < text.size() && text[i] != ')';) {
    if (!std::isdigit(static_cast<unsigned char>(text[i]))) {
      ++i;
      continue;
    }
    int64_t n = 0;
    for (; i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])) && n < kMostPixels; ++i) n = n * 10 + (text[i] - '0');
    shape.push_back(n);
  }
  while (shape.size() < 4) shape.insert(shape.begin(), 1);
  int64_t values = 1;
  for (int64_t n : shape) {
    if (n <= 0 || n > kMostPixels / values) wrong("of an impossible shape");
    values *= n;
  }
  if (shape.size() != 4 || bytes.size() - begin < static_cast<size_t>(values) * (wide ? 4 : 1)) wrong("shorter than its shape");
  const int64_t each = values / shape[0];
  for (int64_t i = 0; i < shape[0]; ++i) {
    Image image{shape[1], shape[2], shape[3], std::vector<float>(static_cast<size_t>(each))};
    for (int64_t v = 0; v < each; ++v) {
      const size_t index = static_cast<size_t>(i * each + v);
      if (wide)
        std::memcpy(&image.values[static_cast<size_t>(v)], &bytes[begin + 4 * index], 4);
      else
        image.values[static_cast<size_t>(v)] = static_cast<float>(static_cast<unsigned char>(bytes[begin + index])) / 127.5f - 1;
    }
    out.push_back(std::move(image));
  }
}

void Data::read_images() const {
  for (const fs::path& path : files_in(folder_)) {
    const std::string extension = path.extension().string();
    if (extension == ".ppm" || extension == ".pgm") images_.push_back(read_netpbm(path.string()));
    if (extension == ".npy") read_npy(path.string(), images_);
  }
  if (images_.empty()) refuse(fmt::format("{} holds no picture", folder_), "put .ppm, .pgm or .npy files into it, or leave --data_dir out");
}

// Made up: waves that move from frame to frame. From files: the nearest pixels, one file a frame.
void Data::images(int64_t sample, int64_t frames, int64_t channels, int64_t height, int64_t width, float* out) const {
  std::mt19937_64 numbers = random(sample, 2);
  if (!folder_.empty() && images_.empty()) read_images();
  const double tilt = static_cast<double>(numbers() % 7) - 3, turns = 1 + static_cast<double>(numbers() % 3);
  const size_t first = images_.empty() ? 0 : numbers() % images_.size();
  for (int64_t f = 0; f < frames; ++f)
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t y = 0; y < height; ++y)
        for (int64_t x = 0; x < width; ++x, ++out) {
          if (images_.empty()) {
            const double across = static_cast<double>(x) / static_cast<double>(width),
                         down = static_cast<double>(y) / static_cast<double>(height);
            *out = static_cast<float>(std::sin(
                2 * std::numbers::pi * (turns * across + tilt * down / 3 + 0.1 * static_cast<double>(f) + 0.25 * static_cast<double>(c))));
            continue;
          }
          const Image& image = images_[(first + static_cast<size_t>(f)) % images_.size()];
          const int64_t from_y = y * image.height / height, from_x = x * image.width / width, from_c = c % image.channels;
          *out = image.values[static_cast<size_t>((from_c * image.height + from_y) * image.width + from_x)];
        }
}

}  // namespace plimsoll::measure
