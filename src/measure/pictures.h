// Pictures in files: PNG, JPEG and BMP (by stb_image), binary PPM and PGM, arrays of NumPy. A file is found once and read each time that
// one of its pictures is asked for, so that a folder may be larger than the memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace plimsoll::measure {

struct Picture {
  int64_t channels = 0, height = 0, width = 0;
  std::vector<float> values;  // from -1 to 1: (channels, height, width)
};

// One picture of a file; an array of NumPy may hold many.
struct PictureSource {
  std::string file;
  int64_t index = 0;
};

// Endings of the files that are read, for messages: ".png, .jpg, ...".
std::string picture_endings();
// Adds the pictures of a file by its ending; none of a file of another kind. Throws an Error for an array that cannot be one of pictures.
void add_pictures(const std::filesystem::path& file, std::vector<PictureSource>& out);
// Throws an Error that names the file and what is wrong with it.
Picture read_picture(const PictureSource& source);

}  // namespace plimsoll::measure
