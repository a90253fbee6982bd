// What models are trained on: text, images or sequences of images from a folder, or made up. A sample is a function of the seed and its
// number, so that a run that was stopped, or one in other micro-batches, sees the same ones. Nothing here is a tensor.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace plimsoll::measure {

class Data {
 public:
  // Without a folder samples are made up: token sequences and pictures with an order to learn. Throws an Error for a folder that cannot
  // be read or holds nothing that is known: text for tokens; .ppm, .pgm and .npy for pictures.
  Data(std::string folder, uint64_t seed);

  // Tokens of a text are its bytes, and so below 256; none is above `vocabulary`.
  void tokens(int64_t sample, int64_t length, int64_t vocabulary, int64_t* out) const;
  // Numbers from -1 to 1: (frames, channels, height, width). Frames of one sample follow each other.
  void images(int64_t sample, int64_t frames, int64_t channels, int64_t height, int64_t width, float* out) const;
  // Numbers that belong to a sample: noise, times of a diffusion.
  std::mt19937_64 random(int64_t sample, uint64_t purpose) const;

  const std::string& folder() const { return folder_; }

 private:
  struct Image {
    int64_t channels, height, width;
    std::vector<float> values;
  };
  void read_text() const;
  void read_images() const;
  static Image read_netpbm(const std::string& path);
  static void read_npy(const std::string& path, std::vector<Image>& out);

  std::string folder_;
  uint64_t seed_;
  mutable std::string text_;  // read when first asked for
  mutable std::vector<Image> images_;
};

}  // namespace plimsoll::measure
