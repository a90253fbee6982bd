// What models are trained on: text, images or sequences of images from a folder, or made up. A sample is a function of the seed and its
// number, so that a run that was stopped, or one in other micro-batches, sees the same ones; several threads may ask. Nothing here is a
// tensor, and nothing of a folder is kept but the names and sizes of its files.
#pragma once

#include <cstdint>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "measure/pictures.h"

namespace plimsoll::measure {

class Data {
 public:
  // Without a folder samples are made up: token sequences and pictures with an order to learn. Throws an Error for a folder that cannot
  // be read; one that does not hold what is asked for is found out then.
  Data(std::string folder, uint64_t seed);

  // Tokens of a text are its bytes, and so below 256; none is above `vocabulary`.
  void tokens(int64_t sample, int64_t length, int64_t vocabulary, int64_t* out) const;
  // Numbers from -1 to 1: (frames, channels, height, width). Frames of one sample follow each other.
  void images(int64_t sample, int64_t frames, int64_t channels, int64_t height, int64_t width, float* out) const;
  // Numbers that belong to a sample: noise, times of a diffusion.
  std::mt19937_64 random(int64_t sample, uint64_t purpose) const;

  const std::string& folder() const { return folder_; }

 private:
  struct TextFile {
    std::string path;
    uint64_t begin, bytes;  // its place in the text of all files
  };
  void find_texts() const;
  void find_pictures() const;
  std::string text_at(uint64_t begin, size_t length) const;

  std::string folder_;
  uint64_t seed_;
  mutable std::once_flag texts_found_, pictures_found_;
  mutable std::vector<TextFile> texts_;  // found when first asked for
  mutable std::vector<PictureSource> pictures_;
};

}  // namespace plimsoll::measure
