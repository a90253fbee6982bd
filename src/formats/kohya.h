// What the files that read and write kohya's sd-scripts share.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace plimsoll {

class Reader;

// A file of datasets, as --dataset_config names it.
bool is_kohya_dataset(const nlohmann::json& value);

// What lies beside the denoiser: the VAE and the text encoders, cached, frozen or trained. `network`: an adapter is trained.
void read_kohya_parts(Reader& r, bool network, const std::string& program);
// --deepspeed and its flags.
void read_kohya_zero(Reader& r);

}  // namespace plimsoll
