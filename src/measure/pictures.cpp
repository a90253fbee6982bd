#include "measure/pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <fstream>
#include <memory>

// Of its formats those that people train on; 2^14 pixels a side are more than the largest of those.
#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_ONLY_PNG
#define STBI_ONLY_JPEG
#define STBI_ONLY_BMP
#define STBI_NO_STDIO
#define STBI_MAX_DIMENSIONS (1 << 14)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include <stb_image.h>
#pragma GCC diagnostic pop

#include "util/error.h"
#include "util/text.h"

namespace plimsoll::measure {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostValues = int64_t{1} << 30;  // of one picture

[[noreturn]] void refuse(const std::string& file, const std::string& why, const std::string& hint) {
  throw Error(fmt::format("[data_dir] {}: {}", file, why), hint);
}

std::string contents(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::string out((std::istreambuf_iterator<char>(in)), {});
  if (!in) refuse(file, "cannot be read", "is it readable?");
  return out;
}

// Bytes with the channels of a pixel beside each other, as all formats but NumPy's have them.
Picture of_bytes(const unsigned char* bytes, int64_t channels, int64_t height, int64_t width) {
  Picture p{channels, height, width, std::vector<float>(static_cast<size_t>(channels * height * width))};
  const int64_t pixels = height * width;
  for (int64_t i = 0; i < pixels; ++i)
    for (int64_t c = 0; c < channels; ++c)
      p.values[static_cast<size_t>(c * pixels + i)] = static_cast<float>(bytes[i * channels + c]) / 127.5f - 1;
  return p;
}

// Grey or colour; what is transparent loses that.
Picture read_compressed(const PictureSource& source) {
  const std::string bytes = contents(source.file);
  if (bytes.size() > static_cast<size_t>(1) << 30) refuse(source.file, "larger than 1 GiB", "leave it out of the folder");
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  const int length = static_cast<int>(bytes.size());
  int width = 0, height = 0, channels = 0;
  if (!stbi_info_from_memory(data, length, &width, &height, &channels))
    refuse(source.file, fmt::format("is no picture that can be read ({})", stbi_failure_reason()), "PNG, JPEG or BMP; or leave it out");
  const int wanted = channels <= 2 ? 1 : 3;
  const std::unique_ptr<stbi_uc, void (*)(void*)> pixels(stbi_load_from_memory(data, length, &width, &height, &channels, wanted),
                                                         stbi_image_free);
  if (!pixels) refuse(source.file, fmt::format("is no whole picture ({})", stbi_failure_reason()), "write it anew; or leave it out");
  return of_bytes(pixels.get(), wanted, height, width);
}

Picture read_netpbm(const PictureSource& source) {
  const std::string bytes = contents(source.file);
  size_t at = 2;
  const auto number = [&] {
    while (at < bytes.size() && (std::isspace(static_cast<unsigned char>(bytes[at])) || bytes[at] == '#')) {
      if (bytes[at] == '#')
        at = std::min(bytes.find('\n', at), bytes.size());
      else
        ++at;
    }
    int64_t n = 0;
    for (; at < bytes.size() && std::isdigit(static_cast<unsigned char>(bytes[at])) && n < kMostValues; ++at)
      n = n * 10 + (bytes[at] - '0');
    return n;
  };
  const bool colour = bytes.starts_with("P6");
  if (!colour && !bytes.starts_with("P5")) refuse(source.file, "is no binary PPM or PGM", "begin it with P6 or P5");
  const int64_t width = number(), height = number(), most = number(), channels = colour ? 3 : 1;
  at = std::min(at + 1, bytes.size());
  if (width <= 0 || height <= 0 || width > kMostValues / height / channels || most != 255 ||
      static_cast<int64_t>(bytes.size() - at) < width * height * channels)
    refuse(source.file, fmt::format("{} x {} pixels up to {} in {} bytes", width, height, most, bytes.size()),
           "give a whole picture with 255 levels");
  return of_bytes(reinterpret_cast<const unsigned char*>(bytes.data()) + at, channels, height, width);
}

struct ArrayHeader {
  size_t begin = 0;  // of the values in the file
  bool wide = false;
  int64_t pictures = 0, channels = 0, height = 0, width = 0;
};

// NumPy's formats 1.0 to 3.0: float32 or uint8 in C order, (H, W), (C, H, W) or (N, C, H, W).
ArrayHeader array_header(const std::string& file, std::ifstream& in) {
  const auto wrong = [&](const std::string& why) { refuse(file, why, "save float32 or uint8 in C order: numpy.save"); };
  if (!in) refuse(file, "cannot be read", "is it readable?");
  unsigned char fixed[12] = {};
  in.read(reinterpret_cast<char*>(fixed), 10);
  if (!in || std::memcmp(fixed, "\x93NUMPY", 6) != 0 || fixed[6] < 1 || fixed[6] > 3) wrong("is no .npy file");
  if (fixed[6] > 1) in.read(reinterpret_cast<char*>(fixed) + 10, 2);
  const size_t length = fixed[8] + 256u * fixed[9] + 65536u * fixed[10];
  std::string text(length, '\0');
  in.read(text.data(), static_cast<std::streamsize>(length));
  if (!in || fixed[11] != 0) wrong("ends in its header");
  ArrayHeader h;
  h.begin = (fixed[6] > 1 ? 12 : 10) + length;
  h.wide = text.find("'<f4'") != std::string::npos;
  if (!h.wide && text.find("'|u1'") == std::string::npos) wrong("neither float32 nor uint8");
  if (text.find("'fortran_order': False") == std::string::npos) wrong("in Fortran order");
  const size_t open = text.find("'shape': (");
  if (open == std::string::npos) wrong("without a shape");
  std::vector<int64_t> shape;
  for (size_t i = open + 10; i < text.size() && text[i] != ')';) {
    if (!std::isdigit(static_cast<unsigned char>(text[i]))) {
      ++i;
      continue;
    }
    int64_t n = 0;
    for (; i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])) && n < kMostValues; ++i) n = n * 10 + (text[i] - '0');
    shape.push_back(n);
  }
  while (shape.size() < 4) shape.insert(shape.begin(), 1);
  if (shape.size() != 4) wrong(fmt::format("{} dimensions", shape.size()));
  int64_t each = 1;
  for (size_t d = 0; d < 4; ++d) {
    if (shape[d] <= 0 || (d > 0 && shape[d] > kMostValues / each)) wrong("of an impossible shape");
    if (d > 0) each *= shape[d];
  }
  h.pictures = shape[0];
  h.channels = shape[1];
  h.height = shape[2];
  h.width = shape[3];
  std::error_code error;
  const auto size = static_cast<int64_t>(fs::file_size(file, error));
  const int64_t bytes = each * (h.wide ? 4 : 1);
  if (error || h.pictures > (size - static_cast<int64_t>(h.begin)) / bytes) wrong("shorter than its shape");
  return h;
}

void add_array(const std::string& file, std::vector<PictureSource>& out) {
  std::ifstream in(file, std::ios::binary);
  const ArrayHeader h = array_header(file, in);
  for (int64_t i = 0; i < h.pictures; ++i) out.push_back({file, i});
}

Picture read_array(const PictureSource& source) {
  std::ifstream in(source.file, std::ios::binary);
  const ArrayHeader h = array_header(source.file, in);
  const auto values = static_cast<size_t>(h.channels * h.height * h.width), bytes = values * (h.wide ? 4 : 1);
  std::string raw(bytes, '\0');
  in.seekg(static_cast<std::streamoff>(h.begin + static_cast<size_t>(source.index) * bytes));
  in.read(raw.data(), static_cast<std::streamsize>(bytes));
  if (!in || source.index >= h.pictures) refuse(source.file, "became shorter while it was read", "leave the folder as it is during a run");
  Picture p{h.channels, h.height, h.width, std::vector<float>(values)};
  if (h.wide) {
    std::memcpy(p.values.data(), raw.data(), bytes);
  } else {
    for (size_t i = 0; i < values; ++i) p.values[i] = static_cast<float>(static_cast<unsigned char>(raw[i])) / 127.5f - 1;
  }
  return p;
}

struct Kind {
  const char* ending;
  Picture (*read)(const PictureSource&);
};
constexpr Kind kKinds[]{{".png", read_compressed}, {".jpg", read_compressed}, {".jpeg", read_compressed}, {".bmp", read_compressed},
                        {".ppm", read_netpbm},     {".pgm", read_netpbm},     {".npy", read_array}};

const Kind* kind_of(const fs::path& file) {
  const std::string ending = lower(file.extension().string());
  const auto* found = std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& k) { return ending == k.ending; });
  return found == std::end(kKinds) ? nullptr : found;
}

}  // namespace

std::string picture_endings() {
  std::vector<std::string> out;
  for (const Kind& k : kKinds) out.emplace_back(k.ending);
  return join(out, ", ");
}

void add_pictures(const fs::path& file, std::vector<PictureSource>& out) {
  const Kind* kind = kind_of(file);
  if (!kind) return;
  if (kind->read == read_array)
    add_array(file.string(), out);
  else
    out.push_back({file.string(), 0});
}

Picture read_picture(const PictureSource& source) { return kind_of(source.file)->read(source); }

}  // namespace plimsoll::measure
