// Parts of formats that other formats have in them.
#pragma once

#include "formats/reader.h"
#include "formats/settings_encoder.h"

namespace plimsoll {

void read_accelerate(Reader& reader);
void read_deepspeed(Reader& reader);
void read_safetensors(Reader& reader);
const SettingsEncoder& writes_axolotl();
const SettingsEncoder& writes_kohya();

}  // namespace plimsoll
